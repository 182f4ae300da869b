// `structuredClone`.
export default function (native, kit) {
  const { bufferOf, define, field, isArray, isBuffer, isDataView, isError, isView, keysOf, lengthOf, named, offsetOf, put, tagOf, uncurry, viewBuffer, viewBytes, viewOffset } = kit;
  const NativeArray = Array, NativeMap = Map, NativeSet = Set, NativeDate = Date, NativeRegExp = RegExp;
  const NativeDataView = DataView, NativeArrayBuffer = ArrayBuffer, NativeUint8Array = Uint8Array;
  const mapGet = uncurry(Map.prototype.get), mapSet = uncurry(Map.prototype.set), mapHas = uncurry(Map.prototype.has);
  const mapForEach = uncurry(Map.prototype.forEach), setAdd = uncurry(Set.prototype.add), setForEach = uncurry(Set.prototype.forEach);
  const dateValue = uncurry(Date.prototype.getTime), setBytes = uncurry(Uint8Array.prototype.set);
  const views = { __proto__: null };
  const names = ["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
    "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array", "Float64Array"];
  for (const name of names) views[name] = globalThis[name];

  const clone = (value, seen) => {
    if (typeof value === "function" || typeof value === "symbol") {
      throw named("DataCloneError", "a " + (typeof value) + " can't be cloned");
    }
    if (typeof value !== "object" || value === null) return value;
    if (mapHas(seen, value)) return mapGet(seen, value);
    const keep = (copy) => {
      mapSet(seen, value, copy);
      return copy;
    };
    const keepOwn = (copy) => {
      keep(copy);
      const keys = keysOf(value);
      for (let i = 0; i < keys.length; i++) put(copy, keys[i], clone(value[keys[i]], seen));
      return copy;
    };
    if (isArray(value)) return keepOwn(new NativeArray(value.length));
    if (isDataView(value)) {
      return keep(new NativeDataView(clone(viewBuffer(value), seen), viewOffset(value), viewBytes(value)));
    }
    if (isView(value)) {
      return keep(new views[tagOf(value)](clone(bufferOf(value), seen), offsetOf(value), lengthOf(value)));
    }
    if (isBuffer(value)) {
      // Not by `slice`, which asks the buffer's class for what to make.
      const bytes = new NativeUint8Array(value), copy = new NativeUint8Array(new NativeArrayBuffer(lengthOf(bytes)));
      setBytes(copy, bytes);
      return keep(bufferOf(copy));
    }
    if (value instanceof NativeDate) return keep(new NativeDate(dateValue(value)));
    if (value instanceof NativeRegExp) return keep(new NativeRegExp(value.source, value.flags));
    if (value instanceof NativeMap) {
      const copy = keep(new NativeMap());
      mapForEach(value, (item, key) => mapSet(copy, clone(key, seen), clone(item, seen)));
      return copy;
    }
    if (value instanceof NativeSet) {
      const copy = keep(new NativeSet());
      setForEach(value, (item) => setAdd(copy, clone(item, seen)));
      return copy;
    }
    if (isError(value)) {
      const copy = keep(named(field(value, "name") ?? "Error", field(value, "message") ?? ""));
      define(copy, "stack", field(value, "stack"));
      return copy;
    }
    return keepOwn({});
  };
  define(globalThis, "structuredClone", (value) => clone(value, new NativeMap()));
}

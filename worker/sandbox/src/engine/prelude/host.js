// `host`: each method sends its arguments as text, and gives a promise that the answer settles.
export default function (native, kit, methods) {
  const { define, defineProperty, freeze, hostLog, isOutOfMemory, messageOf, named, ownKeys, parse, rejected, state, stringify, uncurry } = kit;
  const NativePromise = Promise, NativeError = Error, NativeTypeError = TypeError;
  const mapGet = uncurry(Map.prototype.get), mapSet = uncurry(Map.prototype.set), mapDelete = uncurry(Map.prototype.delete);
  const waiting = new Map();
  let ordinal = 0, pending = 0;
  // What is refused for being too much is refused by one promise for all: a loop that awaits nothing would fill the
  // memory with errors.
  let tooMany = null, tooManyPending = null;

  const hostCall = (number, path) => (...values) => {
    if (state.loading) throw new NativeError("host." + path + " can't be called while the plugin is being loaded: call it in a handler");
    const { limits } = state;
    let count = values.length;
    while (count > 0 && values[count - 1] === undefined) count -= 1;
    // One by one: as an array they would be asked for their `toJSON`.
    let json = "[";
    try {
      for (let i = 0; i < count; i++) json += (i === 0 ? "" : ",") + (stringify(values[i]) ?? "null");
    } catch (error) {
      if (isOutOfMemory(error)) return rejected(error);
      return rejected(new NativeTypeError("host." + path + ": its arguments must be plain JSON: " + messageOf(error, 0)));
    }
    json += "]";
    if (ordinal >= limits.hostCallsMax) {
      return (tooMany ??= rejected(named("LimitError", "a call may make at most " + limits.hostCallsMax + " host calls")));
    }
    if (pending >= limits.hostCallsPendingMax) {
      const most = limits.hostCallsPendingMax;
      return (tooManyPending ??= rejected(
        named("LimitError", "at most " + most + " host calls may be pending at once: await some first"),
      ));
    }
    const own = ordinal;
    if (json.length > limits.hostCallBytesMax || !native.send(own, number, json)) {
      return rejected(named("LimitError", "host." + path + ": its arguments are over " + limits.hostCallBytesMax + " bytes"));
    }
    ordinal += 1;
    pending += 1;
    return new NativePromise((resolve, reject) => {
      mapSet(waiting, own, { __proto__: null, resolve, reject });
    });
  };
  kit.settle = (own, ok, json) => {
    const waiter = mapGet(waiting, own);
    if (waiter === undefined) return;
    mapDelete(waiting, own);
    pending -= 1;
    let value;
    try {
      value = parse(json);
    } catch (error) {
      // Too deep for the engine, or too large for its memory.
      waiter.reject(error);
      return;
    }
    if (ok) waiter.resolve(value);
    else waiter.reject(named(value.name, value.message, value.name === "TypeError" ? NativeTypeError : NativeError));
  };
  kit.pending = () => pending;

  const host = {};
  for (let i = 0; i < methods.length; i++) {
    const { number, path, level } = methods[i];
    const parts = path.split(".");
    let place = host;
    for (let j = 0; j < parts.length - 1; j++) place = place[parts[j]] ??= {};
    const last = parts[parts.length - 1];
    const method = level === undefined ? hostCall(number, path) : hostLog(level);
    define(method, "name", last);
    defineProperty(place, last, { __proto__: null, value: method, writable: false, enumerable: true, configurable: false });
  }
  const freezeAll = (value) => {
    const keys = ownKeys(value);
    for (let i = 0; i < keys.length; i++) {
      if (typeof value[keys[i]] === "object") freezeAll(value[keys[i]]);
      else freeze(value[keys[i]]);
    }
    freeze(value);
  };
  freezeAll(host);
  defineProperty(globalThis, "host", { __proto__: null, value: host, writable: false, enumerable: true, configurable: false });
  globalThis.tools = {};
  globalThis.manifest = {};
}

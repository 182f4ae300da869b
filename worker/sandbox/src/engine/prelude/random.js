// Numbers from the kernel's chance, and the call's own clock.
export default function (native, kit) {
  const { define, freeze, getOwnPropertyDescriptor, getPrototypeOf, named, uncurry } = kit;
  const NativeTypeError = TypeError, NativeUint8Array = Uint8Array, isView = ArrayBuffer.isView;
  const typedArray = getPrototypeOf(Uint8Array.prototype);
  const getter = (name) => uncurry(getOwnPropertyDescriptor(typedArray, name).get);
  const tagOf = getter(Symbol.toStringTag), bufferOf = getter("buffer"), offsetOf = getter("byteOffset"), bytesOf = getter("byteLength");
  Object.assign(kit, { tagOf, bufferOf, offsetOf, bytesOf, lengthOf: getter("length") });

  const integers = { __proto__: null, Int8Array: 1, Uint8Array: 1, Uint8ClampedArray: 1, Int16Array: 1, Uint16Array: 1,
    Int32Array: 1, Uint32Array: 1, BigInt64Array: 1, BigUint64Array: 1 };
  const getRandomValues = (array) => {
    if (!isView(array) || integers[tagOf(array)] === undefined) {
      throw new NativeTypeError("crypto.getRandomValues wants an integer typed array");
    }
    const length = bytesOf(array);
    if (length > 65536) throw named("QuotaExceededError", "crypto.getRandomValues gives at most 65,536 bytes at once");
    const bytes = new NativeUint8Array(bufferOf(array), offsetOf(array), length);
    const random = native.randomBytes(length);
    for (let i = 0; i < length; i++) bytes[i] = random[i];
    return array;
  };
  // The engine's own is seeded once, in the template: every call would draw the same numbers.
  define(Math, "random", () => native.random());
  define(globalThis, "crypto", freeze({ getRandomValues, randomUUID: () => native.randomUUID() }));
  define(globalThis, "performance", freeze({ now: () => native.now(), timeOrigin: 0 }));
}

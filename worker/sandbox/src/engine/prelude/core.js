// What the other parts work with, taken out of a plugin's reach before any of its code runs, and what no plugin gets.
//
// Plugin code may replace anything that it can reach. So whatever platform code uses later is held in a constant and
// called through `uncurry`, objects have no prototype, and arrays are made by `list`. Nothing is looked up anew. What
// looks harmless and isn't: the engine makes a template literal by calling `concat` of its first piece.
export default function (native, kit) {
  const { apply, ownKeys, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { freeze, defineProperty, setPrototypeOf, keys: keysOf, hasOwn } = Object;
  const bind = Function.prototype.bind;
  const uncurry = (method) => apply(bind, Function.prototype.call, [method]);
  const NativePromise = Promise, NativeError = Error, NativeTypeError = TypeError, NativeString = String;
  const { stringify } = JSON, { isArray } = Array;

  // A stack's call sites hand out the functions that they stand for, those of the platform too. And the engine runs a
  // limit's `valueOf` while it makes a stack. Without these accessors both can be set as before, and do nothing.
  delete Error.prepareStackTrace;
  delete Error.stackTraceLimit;
  // There are no threads to share memory with, and nobody to wait for.
  delete globalThis.SharedArrayBuffer;
  delete globalThis.Atomics;

  const put = (target, key, value) =>
    defineProperty(target, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  const define = (target, key, value) =>
    defineProperty(target, key, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  define(Error, "stackTraceLimit", 10);

  const named = (name, message, Base) => {
    const error = new (Base ?? NativeError)(message);
    define(error, "name", name);
    return error;
  };
  // Any value as text, as a template literal has it.
  const text = (value) => {
    if (typeof value === "string") return value;
    if (typeof value === "symbol") throw new NativeTypeError("a symbol is no text");
    return NativeString(value);
  };
  // An array that inherits nothing: writing to it meets no setter.
  const list = () => setPrototypeOf([], null);
  // Plain data of the platform's own as JSON. While the engine writes objects it keeps them in an array of its own, to
  // which it adds by ways that a plugin's setters are in; texts and numbers it just writes.
  const write = (value) => {
    if (typeof value !== "object" || value === null) return stringify(value);
    let json = "", first = true;
    if (isArray(value)) {
      for (let i = 0; i < value.length; i++) json += (i === 0 ? "" : ",") + (write(value[i]) ?? "null");
      return "[" + json + "]";
    }
    const keys = ownKeys(value);
    for (let i = 0; i < keys.length; i++) {
      if (value[keys[i]] === undefined) continue;
      json += (first ? "" : ",") + stringify(keys[i]) + ":" + write(value[keys[i]]);
      first = false;
    }
    return "{" + json + "}";
  };
  const deepFreeze = (value) => {
    if (typeof value === "object" && value !== null) {
      const keys = ownKeys(value);
      for (let i = 0; i < keys.length; i++) deepFreeze(value[keys[i]]);
      freeze(value);
    }
    return value;
  };

  Object.assign(kit, {
    apply, ownKeys, getOwnPropertyDescriptor, getPrototypeOf, freeze, defineProperty, keysOf, hasOwn, uncurry, put, define,
    named, text, list, write, deepFreeze, stringify, isArray,
    parse: JSON.parse,
    isError: Error.isError,
    slice: uncurry(String.prototype.slice),
    NativeString,
    rejected: (reason) => new NativePromise((_, reject) => reject(reason)),
    // What a call is allowed, once one has begun.
    state: { __proto__: null, loading: true, limits: null },
  });
}

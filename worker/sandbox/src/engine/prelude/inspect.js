// Looks at what a freshly evaluated bundle registered, without running any of its code: no getter is called, no
// Proxy is touched, nothing is used that the bundle could have replaced. Gives a registration's facts as JSON; what
// they mean is decided elsewhere.
export default function (native, kit) {
  const { getOwnPropertyDescriptor, getPrototypeOf, hasOwn, isArray, list, ownKeys, put, uncurry, write } = kit;
  const objectPrototype = Object.prototype, arrayPrototype = Array.prototype;
  const descriptionOf = uncurry(getOwnPropertyDescriptor(Symbol.prototype, "description").get);
  const KNOWN = ["description", "parameters", "handler", "alwaysListed", "deferred"];
  const TOOLS_MAX = 1000, DEPTH_MAX = 64, NODES_MAX = 100000;

  const fact = (is, what) => (what === undefined ? { __proto__: null, is } : { __proto__: null, is, what });

  // Copies plain data; a problem ends it with its path.
  const copy = (value, path, depth, state) => {
    if (++state.nodes > NODES_MAX) throw { path, what: "more than 100,000 values" };
    if (depth > DEPTH_MAX) throw { path, what: "nested more than 64 deep" };
    if (value === null || typeof value === "string" || typeof value === "boolean") return value;
    if (typeof value === "number") {
      if (value - value !== 0) throw { path, what: "the number " + value };
      return value;
    }
    if (typeof value === "undefined") throw { path, what: "undefined" };
    if (typeof value !== "object") throw { path, what: "a " + (typeof value) };
    if (native.isProxy(value)) throw { path, what: "a Proxy" };
    for (let i = 0; i < state.above.length; i++) if (state.above[i] === value) throw { path, what: "a cycle" };
    const prototype = getPrototypeOf(value);
    const array = isArray(value);
    if (array ? prototype !== arrayPrototype : prototype !== objectPrototype && prototype !== null) {
      throw { path, what: "an object of a class" };
    }
    state.above[state.above.length] = value;
    const keys = ownKeys(value);
    // Its places, and its length.
    if (array && keys.length !== value.length + 1) throw { path, what: "an array with holes" };
    const result = array ? list() : { __proto__: null };
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      if (array && key === "length") continue;
      if (typeof key === "symbol") throw { path, what: "a symbol as a key" };
      const place = path === "" ? key : path + "." + key;
      const descriptor = getOwnPropertyDescriptor(value, key);
      if (!hasOwn(descriptor, "value")) throw { path: place, what: "a getter" };
      put(result, key, copy(descriptor.value, place, depth + 1, state));
    }
    state.above.length -= 1;
    return result;
  };
  const factOf = (value) => {
    if (value === undefined) return fact("absent");
    if (typeof value === "function") return native.isProxy(value) ? fact("proxy") : fact("function");
    if (typeof value === "number" && value - value !== 0) return fact("other", "number " + value);
    if (typeof value === "symbol" || typeof value === "bigint") return fact("other", typeof value);
    if (typeof value === "object" && value !== null && native.isProxy(value)) return fact("proxy");
    try {
      return fact("json", copy(value, "", 0, { nodes: 0, above: list() }));
    } catch (problem) {
      return fact("notJson", problem.path === "" ? problem.what : problem.path + ": " + problem.what);
    }
  };
  const factOfProperty = (object, key) => {
    const descriptor = getOwnPropertyDescriptor(object, key);
    if (descriptor === undefined) return fact("absent");
    return hasOwn(descriptor, "value") ? factOf(descriptor.value) : fact("accessor");
  };
  // `json true` for an ordinary object whose own properties can be looked at.
  const shapeOf = (descriptor) => {
    if (descriptor === undefined) return fact("absent");
    if (!hasOwn(descriptor, "value")) return fact("accessor");
    const value = descriptor.value;
    if (typeof value !== "object" || value === null || native.isProxy(value)) return factOf(value);
    if (isArray(value)) return fact("other", "array");
    return fact("json", true);
  };
  const toolFacts = (tools, key) => {
    const descriptor = getOwnPropertyDescriptor(tools, key);
    const shape = shapeOf(descriptor);
    const facts = {
      __proto__: null,
      name: typeof key === "symbol" ? "Symbol(" + (descriptionOf(key) ?? "") + ")" : key,
      shape,
      unknown: list(),
    };
    const readable = shape.is === "json" && shape.what === true;
    for (let i = 0; i < KNOWN.length; i++) facts[KNOWN[i]] = readable ? factOfProperty(descriptor.value, KNOWN[i]) : fact("absent");
    if (readable) {
      const keys = ownKeys(descriptor.value);
      for (let i = 0; i < keys.length && facts.unknown.length < 20; i++) {
        let known = false;
        for (let j = 0; j < KNOWN.length; j++) known ||= KNOWN[j] === keys[i];
        if (!known) facts.unknown[facts.unknown.length] = typeof keys[i] === "symbol" ? "a symbol" : keys[i];
      }
    }
    return facts;
  };
  kit.inspect = () => {
    const toolsDescriptor = getOwnPropertyDescriptor(globalThis, "tools");
    const shape = shapeOf(toolsDescriptor);
    const tools = list();
    if (shape.is === "json" && shape.what === true) {
      const keys = ownKeys(toolsDescriptor.value);
      for (let i = 0; i < keys.length && i < TOOLS_MAX; i++) tools[i] = toolFacts(toolsDescriptor.value, keys[i]);
    }
    const manifest = factOfProperty(globalThis, "manifest");
    return write({ __proto__: null, outcome: "loaded", toolsShape: shape, tools, manifest });
  };
}

// Runs before any plugin code: the globals that the engine doesn't have, the bridge to the worker, and the functions
// that run a tool. Returns the latter to the engine's owner.
//
// Plugin code may replace anything that it can reach, so everything used here later is taken out of its reach first:
// held in a constant, called through `uncurry`, kept in objects without a prototype. What crosses the bridge is text.
(function (native, methods) {
  "use strict";
  const { apply, ownKeys, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
  const { freeze, defineProperty, create, isFrozen } = Object;
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const bind = Function.prototype.bind;
  const uncurry = (method) => apply(bind, Function.prototype.call, [method]);
  const NativePromise = Promise, NativeMap = Map, NativeError = Error, NativeTypeError = TypeError, NativeObject = Object;
  const NativeRangeError = RangeError, NativeUint8Array = Uint8Array, NativeArrayBuffer = ArrayBuffer, NativeDate = Date;
  const NativeRegExp = RegExp, NativeSet = Set, NativeString = String, NativeNumber = Number, NativeDataView = DataView;
  const mapGet = uncurry(Map.prototype.get), mapSet = uncurry(Map.prototype.set), mapDelete = uncurry(Map.prototype.delete);
  const mapHas = uncurry(Map.prototype.has), mapForEach = uncurry(Map.prototype.forEach);
  const setAdd = uncurry(Set.prototype.add), setForEach = uncurry(Set.prototype.forEach);
  const slice = uncurry(String.prototype.slice), dateValue = uncurry(Date.prototype.getTime);
  const sliceBuffer = uncurry(ArrayBuffer.prototype.slice), hasOwn = Object.hasOwn, isView = ArrayBuffer.isView;
  const typedArray = getPrototypeOf(Uint8Array.prototype);
  const tagOf = uncurry(getOwnPropertyDescriptor(typedArray, Symbol.toStringTag).get);
  const bufferOf = uncurry(getOwnPropertyDescriptor(typedArray, "buffer").get);
  const offsetOf = uncurry(getOwnPropertyDescriptor(typedArray, "byteOffset").get);
  const bytesOf = uncurry(getOwnPropertyDescriptor(typedArray, "byteLength").get);
  const lengthOf = uncurry(getOwnPropertyDescriptor(typedArray, "length").get);
  const iterator = Symbol.iterator, toPrimitiveText = (value) => `${value}`;
  const resolveNow = uncurry(Promise.prototype.then), settled = Promise.resolve();

  // --- what a call is allowed, and what it has under way ---
  const NAME_MAX = 200, MESSAGE_MAX = 4000, STACK_MAX = 8000, CAUSES_MAX = 5;
  let loading = true, limits = null, ordinal = 0, pending = 0, timers = 0, nextTimer = 1;
  const waiting = new NativeMap(), timed = new NativeMap();

  const define = (target, name, value) =>
    defineProperty(target, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  const named = (name, message, Base) => {
    const error = new (Base ?? NativeError)(message);
    defineProperty(error, "name", { __proto__: null, value: name, writable: true, enumerable: false, configurable: true });
    return error;
  };
  const deepFreeze = (value) => {
    if (typeof value === "object" && value !== null) {
      const keys = ownKeys(value);
      for (let i = 0; i < keys.length; i++) deepFreeze(value[keys[i]]);
      freeze(value);
    }
    return value;
  };

  // --- what was thrown, as text ---
  const field = (value, name) => {
    try {
      const found = value[name];
      return typeof found === "string" ? found : undefined;
    } catch {
      return undefined;
    }
  };
  const asJson = (value) => {
    try {
      return stringify(value);
    } catch {
      return undefined;
    }
  };
  const messageOf = (error, depth) => {
    if (error === null) return "null was thrown";
    if (error === undefined) return "undefined was thrown";
    if (typeof error === "string") return error;
    if (typeof error !== "object" && typeof error !== "function") {
      return typeof error === "symbol" ? "a symbol was thrown" : toPrimitiveText(error);
    }
    let message = field(error, "message");
    if (message === undefined || message === "") {
      message = field(error, "name") ?? asJson(error) ?? "an object without a message was thrown";
    }
    if (depth > 0) {
      try {
        const cause = getOwnPropertyDescriptor(error, "cause");
        if (cause !== undefined && "value" in cause && cause.value !== undefined) {
          message += ` (cause: ${messageOf(cause.value, depth - 1)})`;
        }
        const errors = getOwnPropertyDescriptor(error, "errors");
        if (errors !== undefined && isArray(errors.value)) {
          for (let i = 0; i < errors.value.length && i < CAUSES_MAX; i++) {
            message += ` [${i + 1}] ${messageOf(errors.value[i], depth - 1)}`;
          }
        }
      } catch {
        // A Proxy that throws when looked at: its message will do.
      }
    }
    return message;
  };
  const describe = (error) => {
    const isObject = typeof error === "object" && error !== null;
    const stack = isObject ? field(error, "stack") : undefined;
    return {
      __proto__: null,
      name: isObject ? slice(field(error, "name") ?? "Error", 0, NAME_MAX) : undefined,
      message: slice(messageOf(error, CAUSES_MAX), 0, MESSAGE_MAX),
      stack: stack === undefined || stack === "" ? undefined : slice(stack, 0, STACK_MAX),
    };
  };

  // --- log ---
  const show = (value) => {
    if (typeof value === "string") return value;
    if (typeof value === "object" && value !== null) {
      const stack = value instanceof NativeError ? field(value, "stack") : undefined;
      if (stack !== undefined) return `${field(value, "name") ?? "Error"}: ${field(value, "message") ?? ""}\n${stack}`;
      return asJson(value) ?? "[object]";
    }
    if (typeof value === "function") return "[function]";
    try {
      return NativeString(value);
    } catch {
      return "[?]";
    }
  };
  const logLine = (level) => (...values) => {
    let line = "";
    for (let i = 0; i < values.length; i++) line += (i === 0 ? "" : " ") + show(values[i]);
    native.log(level, line, "");
  };
  const console = { __proto__: null };
  const levels = [["debug", 0], ["trace", 0], ["log", 1], ["info", 1], ["dir", 1], ["warn", 2], ["error", 3]];
  for (let i = 0; i < levels.length; i++) console[levels[i][0]] = logLine(levels[i][1]);
  console.assert = (holds, ...values) => {
    if (!holds) console.error("Assertion failed", ...values);
  };
  define(globalThis, "console", { ...console });

  // --- host ---
  const hostLog = (level) => (message, fields) => {
    const json = fields === undefined || fields === null ? "" : asJson(fields);
    native.log(level, show(message), json ?? "");
  };
  const hostCall = (number, path) => (...values) => {
    if (loading) throw new NativeError(`host.${path} can't be called while the plugin is being loaded: call it in a handler`);
    while (values.length > 0 && values[values.length - 1] === undefined) values.length -= 1;
    let json;
    try {
      json = stringify(values);
    } catch (error) {
      return NativePromise.reject(new NativeTypeError(`host.${path}: its arguments must be plain JSON: ${messageOf(error, 0)}`));
    }
    if (ordinal >= limits.hostCallsMax) {
      return NativePromise.reject(named("LimitError", `a call may make at most ${limits.hostCallsMax} host calls`));
    }
    if (pending >= limits.hostCallsPendingMax) {
      return NativePromise.reject(
        named("LimitError", `at most ${limits.hostCallsPendingMax} host calls may be pending at once: await some first`),
      );
    }
    const own = ordinal;
    if (!native.send(own, number, json)) {
      return NativePromise.reject(named("LimitError", `host.${path}: its arguments are over ${limits.hostCallBytesMax} bytes`));
    }
    ordinal += 1;
    pending += 1;
    return new NativePromise((resolve, reject) => {
      mapSet(waiting, own, { __proto__: null, resolve, reject });
    });
  };
  const settle = (own, ok, json) => {
    const waiter = mapGet(waiting, own);
    if (waiter === undefined) return;
    mapDelete(waiting, own);
    pending -= 1;
    const value = parse(json);
    if (ok) waiter.resolve(value);
    else waiter.reject(named(value.name, value.message, value.name === "TypeError" ? NativeTypeError : NativeError));
  };
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
  const freezeFunctions = (value) => {
    const keys = ownKeys(value);
    for (let i = 0; i < keys.length; i++) {
      if (typeof value[keys[i]] === "object") freezeFunctions(value[keys[i]]);
      else freeze(value[keys[i]]);
    }
    freeze(value);
  };
  freezeFunctions(host);
  defineProperty(globalThis, "host", { __proto__: null, value: host, writable: false, enumerable: true, configurable: false });
  globalThis.tools = {};
  globalThis.manifest = {};

  // --- timers ---
  const setTimer = (every) => (callback, delay, ...values) => {
    if (typeof callback !== "function") throw new NativeTypeError("a timer's callback must be a function");
    if (loading) throw new NativeError("a timer can't be set while the plugin is being loaded: set it in a handler");
    if (timers >= limits.timersMax) throw named("LimitError", `at most ${limits.timersMax} timers may be pending at once`);
    let ms = +delay;
    if (!(ms >= 0)) ms = 0;
    if (every && ms < 1) ms = 1;
    const id = nextTimer++;
    timers += 1;
    mapSet(timed, id, { __proto__: null, callback, values, every: every ? ms : -1 });
    native.timerSet(id, ms);
    return id;
  };
  const clearTimer = (id) => {
    if (mapDelete(timed, id)) {
      timers -= 1;
      native.timerClear(id);
    }
  };
  const fire = (id) => {
    const timer = mapGet(timed, id);
    if (timer === undefined) return;
    if (timer.every >= 0) {
      native.timerSet(id, timer.every);
    } else {
      mapDelete(timed, id);
      timers -= 1;
    }
    try {
      apply(timer.callback, undefined, timer.values);
    } catch (error) {
      native.log(3, `a timer's callback threw ${messageOf(error, 1)}`, "");
    }
  };
  define(globalThis, "setTimeout", setTimer(false));
  define(globalThis, "setInterval", setTimer(true));
  define(globalThis, "clearTimeout", clearTimer);
  define(globalThis, "clearInterval", clearTimer);
  define(globalThis, "queueMicrotask", (callback) => {
    if (typeof callback !== "function") throw new NativeTypeError("queueMicrotask wants a function");
    resolveNow(settled, () => callback());
  });

  // --- numbers from the kernel's chance ---
  define(Math, "random", () => native.random());
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
  define(globalThis, "crypto", freeze({ getRandomValues, randomUUID: () => native.randomUUID() }));
  define(globalThis, "performance", freeze({ now: () => native.now(), timeOrigin: 0 }));

  // --- text ---
  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(text = "") {
      return native.utf8Encode(toPrimitiveText(text));
    }
  }
  class TextDecoder {
    #fatal;
    #keepMark;
    constructor(label = "utf-8", options = {}) {
      const name = toPrimitiveText(label).toLowerCase();
      if (name !== "utf-8" && name !== "utf8") throw new NativeRangeError(`TextDecoder knows utf-8 only, not ${name}`);
      this.#fatal = !!options.fatal;
      this.#keepMark = !!options.ignoreBOM;
    }
    get encoding() {
      return "utf-8";
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#keepMark;
    }
    decode(bytes) {
      if (bytes === undefined) return "";
      let view;
      if (bytes instanceof NativeArrayBuffer) view = new NativeUint8Array(bytes);
      else if (isView(bytes)) view = new NativeUint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      else throw new NativeTypeError("TextDecoder.decode wants an ArrayBuffer or a view of one");
      const text = native.utf8Decode(view, this.#fatal);
      if (text === null) throw new NativeTypeError("these bytes aren't UTF-8");
      return !this.#keepMark && text.charCodeAt(0) === 0xfeff ? slice(text, 1) : text;
    }
  }
  define(globalThis, "TextEncoder", TextEncoder);
  define(globalThis, "TextDecoder", TextDecoder);
  define(globalThis, "btoa", (text) => {
    const encoded = native.btoa(toPrimitiveText(text));
    if (encoded === null) throw named("InvalidCharacterError", "btoa takes characters up to U+00FF only");
    return encoded;
  });
  define(globalThis, "atob", (text) => {
    const decoded = native.atob(toPrimitiveText(text));
    if (decoded === null) throw named("InvalidCharacterError", "this isn't base64");
    return decoded;
  });

  // --- copies ---
  const clone = (value, seen) => {
    if (typeof value === "function" || typeof value === "symbol") {
      throw named("DataCloneError", `a ${typeof value} can't be cloned`);
    }
    if (typeof value !== "object" || value === null) return value;
    if (mapHas(seen, value)) return mapGet(seen, value);
    const keep = (copy) => {
      mapSet(seen, value, copy);
      return copy;
    };
    if (isArray(value)) {
      const copy = keep(new Array(value.length));
      const keys = Object.keys(value);
      for (const key of keys) copy[key] = clone(value[key], seen);
      return copy;
    }
    if (value instanceof NativeDate) return keep(new NativeDate(dateValue(value)));
    if (value instanceof NativeRegExp) return keep(new NativeRegExp(value.source, value.flags));
    if (value instanceof NativeArrayBuffer) return keep(sliceBuffer(value, 0));
    if (isView(value)) {
      const buffer = clone(value.buffer, seen);
      const size = value instanceof NativeDataView ? value.byteLength : lengthOf(value);
      return keep(new value.constructor(buffer, value.byteOffset, size));
    }
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
    if (value instanceof NativeError) {
      const copy = keep(named(field(value, "name") ?? "Error", field(value, "message") ?? ""));
      define(copy, "stack", field(value, "stack"));
      return copy;
    }
    const copy = keep({});
    for (const key of Object.keys(value)) {
      defineProperty(copy, key, { __proto__: null, value: clone(value[key], seen), writable: true, enumerable: true, configurable: true });
    }
    return copy;
  };
  define(globalThis, "structuredClone", (value) => clone(value, new NativeMap()));

  // --- AbortController ---
  class AbortSignal {
    #aborted = false;
    #reason = undefined;
    #listeners = [];
    onabort = null;
    get aborted() {
      return this.#aborted;
    }
    get reason() {
      return this.#reason;
    }
    throwIfAborted() {
      if (this.#aborted) throw this.#reason;
    }
    addEventListener(type, listener) {
      if (type === "abort" && typeof listener === "function") this.#listeners.push(listener);
    }
    removeEventListener(type, listener) {
      if (type === "abort") this.#listeners = this.#listeners.filter((one) => one !== listener);
    }
    static abort(reason) {
      const signal = new AbortSignal();
      signal.#abort(reason);
      return signal;
    }
    static timeout(ms) {
      const signal = new AbortSignal();
      globalThis.setTimeout(() => signal.#abort(named("TimeoutError", `the time of ${ms} ms is over`)), ms);
      return signal;
    }
    static any(signals) {
      const both = new AbortSignal();
      for (const signal of signals) {
        if (signal.aborted) both.#abort(signal.reason);
        else signal.addEventListener("abort", () => both.#abort(signal.reason));
      }
      return both;
    }
    #abort(reason) {
      if (this.#aborted) return;
      this.#aborted = true;
      this.#reason = reason ?? named("AbortError", "the operation was aborted");
      const event = { type: "abort", target: this };
      for (const listener of [this.onabort, ...this.#listeners]) {
        if (typeof listener === "function") listener.call(this, event);
      }
      this.#listeners = [];
    }
    static controlled() {
      const signal = new AbortSignal();
      return { signal, abort: (reason) => signal.#abort(reason) };
    }
  }
  const controlled = AbortSignal.controlled;
  delete AbortSignal.controlled;
  class AbortController {
    #controlled = controlled();
    get signal() {
      return this.#controlled.signal;
    }
    abort(reason) {
      this.#controlled.abort(reason);
    }
  }
  define(globalThis, "AbortSignal", AbortSignal);
  define(globalThis, "AbortController", AbortController);

  // --- URL ---
  class URLSearchParams {
    #pairs = [];
    #changed = null;
    constructor(from = "") {
      if (typeof from === "object" && from !== null) {
        if (typeof from[iterator] === "function") for (const [key, value] of from) this.append(key, value);
        else for (const key of Object.keys(from)) this.append(key, from[key]);
      } else {
        let text = toPrimitiveText(from);
        if (text[0] === "?") text = slice(text, 1);
        this.#pairs = parse(native.formParse(text));
      }
    }
    static attached(text, changed) {
      const params = new URLSearchParams(text);
      params.#changed = changed;
      return params;
    }
    #change(pairs) {
      this.#pairs = pairs;
      if (this.#changed !== null) this.#changed(this.toString());
    }
    get size() {
      return this.#pairs.length;
    }
    append(key, value) {
      this.#change([...this.#pairs, [`${key}`, `${value}`]]);
    }
    delete(key, value) {
      this.#change(this.#pairs.filter(([k, v]) => k !== `${key}` || (value !== undefined && v !== `${value}`)));
    }
    get(key) {
      const found = this.#pairs.find(([k]) => k === `${key}`);
      return found === undefined ? null : found[1];
    }
    getAll(key) {
      return this.#pairs.filter(([k]) => k === `${key}`).map(([, v]) => v);
    }
    has(key, value) {
      return this.#pairs.some(([k, v]) => k === `${key}` && (value === undefined || v === `${value}`));
    }
    set(key, value) {
      const at = this.#pairs.findIndex(([k]) => k === `${key}`);
      if (at < 0) this.append(key, value);
      else this.#change(this.#pairs.filter(([k], i) => i <= at || k !== `${key}`).map((pair, i) => (i === at ? [`${key}`, `${value}`] : pair)));
    }
    sort() {
      this.#change([...this.#pairs].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
    }
    forEach(callback, self) {
      for (const [key, value] of this.#pairs) callback.call(self, value, key, this);
    }
    *keys() {
      for (const [key] of this.#pairs) yield key;
    }
    *values() {
      for (const [, value] of this.#pairs) yield value;
    }
    *entries() {
      for (const [key, value] of this.#pairs) yield [key, value];
    }
    [iterator]() {
      return this.entries();
    }
    toString() {
      return native.formSerialize(stringify(this.#pairs));
    }
  }
  const attached = URLSearchParams.attached;
  delete URLSearchParams.attached;
  class URL {
    #parts;
    #params = null;
    constructor(text, base) {
      const json = native.urlParse(`${text}`, base === undefined ? null : `${base}`);
      if (json === null) throw new NativeTypeError(`Invalid URL: ${text}`);
      this.#parts = parse(json);
    }
    static canParse(text, base) {
      return native.urlParse(`${text}`, base === undefined ? null : `${base}`) !== null;
    }
    static parse(text, base) {
      return URL.canParse(text, base) ? new URL(text, base) : null;
    }
    #set(name, value) {
      const json = native.urlSet(this.#parts.href, name, `${value}`);
      if (json !== null) this.#parts = parse(json);
      else if (name === "href") throw new NativeTypeError(`Invalid URL: ${value}`);
      if (name !== "searchParams") this.#params = null;
    }
    get searchParams() {
      return (this.#params ??= attached(this.#parts.search, (text) => this.#set("searchParams", text)));
    }
    get origin() {
      return this.#parts.origin;
    }
    toString() {
      return this.#parts.href;
    }
    toJSON() {
      return this.#parts.href;
    }
    static {
      for (const name of ["href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"]) {
        defineProperty(this.prototype, name, {
          get() {
            return this.#parts[name];
          },
          set(value) {
            this.#set(name, value);
          },
          enumerable: true,
          configurable: true,
        });
      }
    }
  }
  define(globalThis, "URL", URL);
  define(globalThis, "URLSearchParams", URLSearchParams);

  // --- running a tool ---
  const finishFailed = (kind, description) => native.finish(false, stringify({ __proto__: null, kind, ...description }));
  const fail = (error) => finishFailed("thrown", describe(error));
  const tooLarge = (what) =>
    finishFailed("tooLarge", {
      message:
        `the result is ${what}, and a call may return ${limits.resultBytesMax} bytes: return less, or write it to a ` +
        "file of the workspace",
    });
  const isOutOfMemory = (error) => error === null || field(error, "message") === "out of memory";
  const run = async (name, inputJson, contextJson) => {
    let value;
    try {
      const tools = globalThis.tools;
      const tool = typeof tools === "object" && tools !== null && hasOwn(tools, name) ? tools[name] : undefined;
      if (tool === undefined || tool === null || typeof tool.handler !== "function") {
        finishFailed("toolNotFound", { message: `the plugin registers no tool ${name}` });
        return;
      }
      value = await apply(tool.handler, tool, [parse(inputJson), deepFreeze(parse(contextJson))]);
    } catch (error) {
      fail(error);
      return;
    }
    if (typeof value === "string" && value.length > limits.resultBytesMax) {
      tooLarge(`text of ${value.length} characters`);
      return;
    }
    let json;
    try {
      json = stringify(value);
    } catch (error) {
      // Writing it down is what used up the memory.
      if (isOutOfMemory(error)) tooLarge("more than fits into the call's memory as JSON");
      else finishFailed("unserializable", { message: `the returned value isn't plain JSON: ${messageOf(error, 1)}` });
      return;
    }
    native.finish(true, json === undefined ? "null" : json);
  };
  return {
    __proto__: null,
    describe: (error) => stringify(describe(error)),
    prepare: (resultBytesMax, hostCallsMax, hostCallsPendingMax, hostCallBytesMax, timersMax) => {
      limits = { __proto__: null, resultBytesMax, hostCallsMax, hostCallsPendingMax, hostCallBytesMax, timersMax };
    },
    begin: (name, inputJson, contextJson) => {
      loading = false;
      return run(name, inputJson, contextJson);
    },
    settle,
    fire,
    pending: () => pending,
  };
});

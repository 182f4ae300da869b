// `URL` and `URLSearchParams`, over the bridge's parser.
export default function (native, kit) {
  const { define, defineProperty, keysOf, list, parse, put, slice, text, write } = kit;
  const NativeTypeError = TypeError, iterator = Symbol.iterator;

  const pair = (key, value) => {
    const both = list();
    both[0] = key;
    both[1] = value;
    return both;
  };
  const pairsOf = (query) => {
    const parsed = parse(native.formParse(query)), pairs = list();
    for (let i = 0; i < parsed.length; i++) pairs[i] = pair(parsed[i][0], parsed[i][1]);
    return pairs;
  };
  class URLSearchParams {
    #pairs = list();
    #changed = null;
    constructor(from = "") {
      if (typeof from === "object" && from !== null) {
        if (typeof from[iterator] === "function") {
          for (const [key, value] of from) this.append(key, value);
        } else {
          const keys = keysOf(from);
          for (let i = 0; i < keys.length; i++) this.append(keys[i], from[keys[i]]);
        }
      } else {
        const query = text(from);
        this.#pairs = pairsOf(query[0] === "?" ? slice(query, 1) : query);
      }
    }
    static attached(query, changed) {
      const params = new URLSearchParams(query);
      params.#changed = changed;
      return params;
    }
    #change(pairs) {
      this.#pairs = pairs;
      if (this.#changed !== null) this.#changed(native.formSerialize(write(pairs)));
    }
    #select(holds) {
      const kept = list();
      for (let i = 0; i < this.#pairs.length; i++) if (holds(this.#pairs[i], i)) kept[kept.length] = this.#pairs[i];
      return kept;
    }
    get size() {
      return this.#pairs.length;
    }
    append(key, value) {
      const pairs = this.#select(() => true);
      pairs[pairs.length] = pair(text(key), text(value));
      this.#change(pairs);
    }
    delete(key, value) {
      const name = text(key), only = value === undefined ? undefined : text(value);
      this.#change(this.#select((one) => one[0] !== name || (only !== undefined && one[1] !== only)));
    }
    get(key) {
      const name = text(key), found = this.#select((one) => one[0] === name);
      return found.length === 0 ? null : found[0][1];
    }
    getAll(key) {
      const name = text(key), found = this.#select((one) => one[0] === name), values = [];
      for (let i = 0; i < found.length; i++) put(values, i, found[i][1]);
      return values;
    }
    has(key, value) {
      const name = text(key), only = value === undefined ? undefined : text(value);
      return this.#select((one) => one[0] === name && (only === undefined || one[1] === only)).length > 0;
    }
    set(key, value) {
      const name = text(key), set = pair(name, text(value));
      let isSet = false;
      const pairs = this.#select((one) => {
        const first = one[0] === name && !isSet;
        isSet ||= first;
        return first || one[0] !== name;
      });
      for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === name) pairs[i] = set;
      if (!isSet) pairs[pairs.length] = set;
      this.#change(pairs);
    }
    sort() {
      // Pairs of one key keep their order.
      const pairs = this.#select(() => true);
      for (let i = 1; i < pairs.length; i++) {
        const one = pairs[i];
        let at = i;
        for (; at > 0 && pairs[at - 1][0] > one[0]; at--) pairs[at] = pairs[at - 1];
        pairs[at] = one;
      }
      this.#change(pairs);
    }
    forEach(callback, self) {
      for (let i = 0; i < this.#pairs.length; i++) callback.call(self, this.#pairs[i][1], this.#pairs[i][0], this);
    }
    *keys() {
      for (let i = 0; i < this.#pairs.length; i++) yield this.#pairs[i][0];
    }
    *values() {
      for (let i = 0; i < this.#pairs.length; i++) yield this.#pairs[i][1];
    }
    *entries() {
      for (let i = 0; i < this.#pairs.length; i++) yield [this.#pairs[i][0], this.#pairs[i][1]];
    }
    [iterator]() {
      return this.entries();
    }
    toString() {
      return native.formSerialize(write(this.#pairs));
    }
  }
  const attached = URLSearchParams.attached;
  delete URLSearchParams.attached;

  const parseUrl = (url, base) => native.urlParse(text(url), base === undefined ? null : text(base));
  class URL {
    #parts;
    #params = null;
    constructor(url, base) {
      const json = parseUrl(url, base);
      if (json === null) throw new NativeTypeError("Invalid URL: " + text(url));
      this.#parts = parse(json);
    }
    static canParse(url, base) {
      return parseUrl(url, base) !== null;
    }
    static parse(url, base) {
      return parseUrl(url, base) === null ? null : new URL(url, base);
    }
    #set(name, value) {
      const json = native.urlSet(this.#parts.href, name, text(value));
      if (json !== null) this.#parts = parse(json);
      else if (name === "href") throw new NativeTypeError("Invalid URL: " + text(value));
      if (name !== "searchParams") this.#params = null;
    }
    get searchParams() {
      return (this.#params ??= attached(this.#parts.search, (query) => this.#set("searchParams", query)));
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
}

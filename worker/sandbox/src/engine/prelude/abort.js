// `AbortController` and `AbortSignal`.
export default function (native, kit) {
  const { apply, define, list, named, text } = kit;
  const setTimeout = kit.setTimeout;

  class AbortSignal {
    #aborted = false;
    #reason = undefined;
    #listeners = list();
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
      if (type === "abort" && typeof listener === "function") this.#listeners[this.#listeners.length] = listener;
    }
    removeEventListener(type, listener) {
      if (type !== "abort") return;
      const kept = list();
      for (let i = 0; i < this.#listeners.length; i++) {
        if (this.#listeners[i] !== listener) kept[kept.length] = this.#listeners[i];
      }
      this.#listeners = kept;
    }
    static abort(reason) {
      const signal = new AbortSignal();
      signal.#abort(reason);
      return signal;
    }
    static timeout(ms) {
      const signal = new AbortSignal();
      setTimeout(() => signal.#abort(named("TimeoutError", "the time of " + text(ms) + " ms is over")), ms);
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
      const listeners = this.#listeners;
      this.#listeners = list();
      if (typeof this.onabort === "function") this.onabort(event);
      for (let i = 0; i < listeners.length; i++) apply(listeners[i], this, [event]);
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
}

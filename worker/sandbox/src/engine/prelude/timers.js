// Timers and microtasks. The clock is the engine's owner's, which calls `fire` when a timer is due.
export default function (native, kit) {
  const { apply, define, messageOf, named, state, uncurry } = kit;
  const NativeError = Error, NativeTypeError = TypeError;
  const mapGet = uncurry(Map.prototype.get), mapSet = uncurry(Map.prototype.set), mapDelete = uncurry(Map.prototype.delete);
  const timed = new Map();
  let timers = 0, nextTimer = 1;

  const setTimer = (every) => (callback, delay, ...values) => {
    if (typeof callback !== "function") throw new NativeTypeError("a timer's callback must be a function");
    if (state.loading) throw new NativeError("a timer can't be set while the plugin is being loaded: set it in a handler");
    let ms = +delay;
    if (timers >= state.limits.timersMax) {
      throw named("LimitError", "at most " + state.limits.timersMax + " timers may be pending at once");
    }
    if (!(ms >= 0)) ms = 0;
    if (every && ms < 1) ms = 1;
    const id = nextTimer++;
    mapSet(timed, id, { __proto__: null, callback, values, every: every ? ms : -1 });
    timers += 1;
    native.timerSet(id, ms);
    return id;
  };
  const clearTimer = (id) => {
    if (mapDelete(timed, id)) {
      timers -= 1;
      native.timerClear(id);
    }
  };
  kit.fire = (id) => {
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
      native.log(3, "a timer's callback threw " + messageOf(error, 1), "");
    }
  };
  kit.setTimeout = setTimer(false);
  define(globalThis, "setTimeout", kit.setTimeout);
  define(globalThis, "setInterval", setTimer(true));
  define(globalThis, "clearTimeout", clearTimer);
  define(globalThis, "clearInterval", clearTimer);

  const then = uncurry(Promise.prototype.then), settled = Promise.resolve();
  // `then` makes its result by the promise's constructor: by the engine's own, whatever a plugin puts in its place.
  define(settled, "constructor", undefined);
  define(globalThis, "queueMicrotask", (callback) => {
    if (typeof callback !== "function") throw new NativeTypeError("queueMicrotask wants a function");
    then(settled, () => {
      callback();
    });
  });
}

// Text to bytes and back.
export default function (native, kit) {
  const { bufferOf, bytesOf, define, getOwnPropertyDescriptor, named, offsetOf, slice, tagOf, text, uncurry } = kit;
  const NativeRangeError = RangeError, NativeTypeError = TypeError, NativeUint8Array = Uint8Array;
  const NativeArrayBuffer = ArrayBuffer;
  const isView = ArrayBuffer.isView, lower = uncurry(String.prototype.toLowerCase);
  const bufferBytes = uncurry(getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get);
  const viewOf = (name) => uncurry(getOwnPropertyDescriptor(DataView.prototype, name).get);
  const viewBuffer = viewOf("buffer"), viewOffset = viewOf("byteOffset"), viewBytes = viewOf("byteLength");

  const isBuffer = (value) => {
    try {
      return value instanceof NativeArrayBuffer && bufferBytes(value) >= 0;
    } catch {
      return false;
    }
  };
  const isDataView = (value) => isView(value) && tagOf(value) === undefined;
  Object.assign(kit, { isBuffer, isDataView, isView, viewBuffer, viewOffset, viewBytes });

  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(string = "") {
      return native.utf8Encode(text(string));
    }
  }
  class TextDecoder {
    #fatal;
    #keepMark;
    constructor(label = "utf-8", options = {}) {
      const name = lower(text(label));
      if (name !== "utf-8" && name !== "utf8") throw new NativeRangeError("TextDecoder knows utf-8 only, not " + name);
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
      if (isDataView(bytes)) view = new NativeUint8Array(viewBuffer(bytes), viewOffset(bytes), viewBytes(bytes));
      else if (isView(bytes)) view = new NativeUint8Array(bufferOf(bytes), offsetOf(bytes), bytesOf(bytes));
      else if (isBuffer(bytes)) view = new NativeUint8Array(bytes);
      else throw new NativeTypeError("TextDecoder.decode wants an ArrayBuffer or a view of one");
      const decoded = native.utf8Decode(view, this.#fatal);
      if (decoded === null) throw new NativeTypeError("these bytes aren't UTF-8");
      return !this.#keepMark && decoded[0] === "\ufeff" ? slice(decoded, 1) : decoded;
    }
  }
  define(globalThis, "TextEncoder", TextEncoder);
  define(globalThis, "TextDecoder", TextDecoder);
  define(globalThis, "btoa", (string) => {
    const encoded = native.btoa(text(string));
    if (encoded === null) throw named("InvalidCharacterError", "btoa takes characters up to U+00FF only");
    return encoded;
  });
  define(globalThis, "atob", (string) => {
    const decoded = native.atob(text(string));
    if (decoded === null) throw named("InvalidCharacterError", "this isn't base64");
    return decoded;
  });
}

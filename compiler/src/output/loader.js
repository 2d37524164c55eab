// Loads and runs MODEL.wasm, a model compiled by numrsc: in pages, in workers and in Node.
//
//   import { load } from "./MODEL.js";
//
//   const model = await load();                       // MODEL.wasm next to this file; or load(url), load(bytes), ...
//   model.inputs;                                     // [{ name: "x", dtype: "f32", shape: ["batch", 3], array: "Float32Array" }]
//   const { y } = model.run({ x: new Float32Array(6) });
//   y.data, y.shape;                                  // a Float32Array, [2, 3]
//
// Running takes its time on the thread that asks for it: large models belong into a worker.

/**
 * @typedef {object} Port What is known of an input or output.
 * @property {string} name
 * @property {string} dtype The type of its elements: f32, f64, f16, bf16, i8 to i64, u8 to u64, bool, ...
 * @property {(number|string)[]} shape Sizes; a name or formula is a size that is open.
 * @property {string} array The typed array that holds it. Elements that JavaScript lacks (f16, bf16, ...) are their bits.
 * @property {(number|string)[]} [labels] What the entries along the last axis stand for: classes, of which an output has the probabilities.
 *
 * @typedef {object} Tensor
 * @property {ArrayBufferView} data
 * @property {number[]} shape
 */

/**
 * Load the model from a URL, a Response (or what will be one), the bytes of the file, or a compiled WebAssembly.Module.
 * @returns {Promise<Model>}
 */
export async function load(source = new URL("./MODEL.wasm", import.meta.url)) {
  const module = await compile(await source);
  const [section] = WebAssembly.Module.customSections(module, "numrsc");
  const about = section && JSON.parse(new TextDecoder().decode(section));
  if (about?.format !== FORMAT) throw new Error("this is not a model of the numrsc that made this loader: compile it again");
  const heap = new Heap();
  const { exports } = await WebAssembly.instantiate(module, { numrsc: heap.imports });
  heap.use(exports.memory, exports.__heap_base.value);
  return new Model(about, heap, exports.run);
}

async function compile(source) {
  if (source instanceof WebAssembly.Module) return source;
  if (typeof source === "string" || source instanceof URL) {
    const url = new URL(source, globalThis.location?.href ?? import.meta.url);
    // Node fetches no files.
    const files = url.protocol === "file:" && globalThis.process?.getBuiltinModule?.("node:fs");
    source = files ? await files.promises.readFile(url) : await fetch(url);
  }
  if (!(source instanceof Response)) return WebAssembly.compile(source);
  if (!source.ok) throw new Error(`cannot load ${source.url}: ${source.status} ${source.statusText}`);
  const streams = source.headers.get("Content-Type")?.startsWith("application/wasm");
  return streams ? WebAssembly.compileStreaming(source) : WebAssembly.compile(await source.arrayBuffer());
}

/** A loaded model. It runs one thing at a time, in memory that it keeps for the next run. */
export class Model {
  #heap;
  #run;
  #failures;

  constructor({ model, producer, inputs, outputs, failures }, heap, run) {
    /** Its name, and what compiled it. */
    this.name = model;
    this.producer = producer;
    /** @type {Port[]} */
    this.inputs = inputs;
    /** @type {Port[]} */
    this.outputs = outputs;
    this.#heap = heap;
    this.#run = run;
    this.#failures = failures;
  }

  /**
   * Run the model.
   * @param {Object<string, ArrayBufferView|Tensor>} inputs By name: a typed array, or with its shape if that has more than one open size.
   * @returns {Object<string, Tensor>} Outputs by name.
   */
  run(inputs) {
    const given = new Map(Object.entries(inputs ?? {}));
    const names = this.inputs.map((port) => port.name);
    const unknown = [...given.keys()].find((name) => !names.includes(name));
    if (unknown !== undefined) throw new TypeError(`the model has no input "${unknown}"; it has ${names.map((name) => `"${name}"`).join(", ")}`);
    const tensors = this.inputs.map((port) => checked(port, given.get(port.name)));
    const heap = this.#heap;
    heap.restart();
    // What compiled code gets is a table of 64-bit numbers: a run context of 12, then 4 for each input and output, then all sizes.
    const shapes = [...tensors.map((tensor) => tensor.shape), ...this.outputs.map((port) => port.shape.map(() => 0))];
    const context = heap.take(8 * (12 + 4 * shapes.length + shapes.flat().length));
    const slots = context + 8 * 12;
    const table = [0, 0, 0, slots, slots + 8 * 4 * tensors.length, 1, 0, 0, 0, 0, 0, 0];
    let sizes = slots + 8 * 4 * shapes.length;
    shapes.forEach((shape, i) => {
      table.push(i < tensors.length ? heap.put(tensors[i].data) : 0, sizes, 0, 0);
      sizes += 8 * shape.length;
    });
    heap.put(BigUint64Array.from([...table, ...shapes.flat()], BigInt), context);

    const code = this.#run(context);
    if (code !== 0) throw new Error(heap.refused ?? this.#failures[code - 1] ?? `the model failed with code ${code}`);

    const output = (port, i) => {
      const [data, sizes] = heap.numbers(slots + 8 * 4 * (tensors.length + i), 2);
      const shape = heap.numbers(sizes, port.shape.length);
      return [port.name, { data: heap.copy(globalThis[port.array], data, product(shape)), shape }];
    };
    return Object.fromEntries(this.outputs.map(output));
  }
}

/** An input as a tensor that the model can take. */
function checked(port, value) {
  const wrong = (problem) => new TypeError(`input "${port.name}" (${port.dtype}[${port.shape.join(", ")}]) ${problem}`);
  if (value === undefined || value === null) throw wrong("is missing");
  const data = ArrayBuffer.isView(value) ? value : (value.data ?? value);
  const found = data[Symbol.toStringTag] ?? data.constructor?.name ?? typeof data;
  // Arrays of the same bits.
  const same = { f16: "Float16Array", u8: "Uint8ClampedArray" }[port.dtype];
  if (found !== port.array && found !== same) throw wrong(`takes a ${port.array}, not ${found}`);
  const open = port.shape.filter((size) => typeof size === "string");
  if (!value.shape && open.length > 1) throw wrong("has several open sizes: give { data, shape }");
  // One open size follows from the number of elements.
  const rest = product(port.shape.filter((size) => typeof size === "number"));
  const shape = Array.from(value.shape ?? port.shape, (size) => (typeof size === "string" ? Math.floor(data.length / rest) || 0 : Number(size)));
  const fits = (size, axis) => (typeof port.shape[axis] === "string" ? Number.isSafeInteger(size) && size >= 0 : size === port.shape[axis]);
  if (shape.length !== port.shape.length || !shape.every(fits)) throw wrong(`cannot have the shape [${shape.join(", ")}]`);
  if (product(shape) !== data.length) throw wrong(`of shape [${shape.join(", ")}] takes ${product(shape)} elements, but ${data.length} were given`);
  return { data, shape };
}

const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

/** The memory behind the model's own, which starts anew with every run and grows as needed. */
class Heap {
  #memory;
  #base;
  #end;
  #blocks; // Their sizes, by address.
  #idle; // Addresses of blocks that came back, by size.
  #arena;
  /** Why a run had to fail. */
  refused;

  /** What compiled code calls: memory of at least that many bytes, or 0 if there is none; and to give a block back. */
  imports = {
    arena: (_context, bytes) => {
      if (!(this.#blocks.get(this.#arena) >= bytes)) this.#arena = this.#try(bytes);
      return this.#arena;
    },
    alloc: (_context, bytes) => this.#try(bytes),
    free: (_context, block) => {
      const size = this.#blocks.get(block >>> 0);
      if (!this.#idle.has(size)) this.#idle.set(size, []);
      this.#idle.get(size).push(block >>> 0);
      return 0;
    },
  };

  use(memory, base) {
    this.#memory = memory;
    this.#base = Math.ceil((base >>> 0) / 64) * 64;
  }

  restart() {
    this.#end = this.#base;
    this.#blocks = new Map();
    this.#idle = new Map();
    this.#arena = 0;
    this.refused = undefined;
  }

  /** A block, at a multiple of 64. */
  take(bytes) {
    // Eight sizes to the octave, so that blocks that came back fit often.
    const unit = Math.max(64, 2 ** (Math.floor(Math.log2(bytes)) - 3));
    const size = Math.max(1, Math.ceil(bytes / unit)) * unit;
    let block = this.#idle.get(size)?.pop();
    if (block === undefined) {
      block = this.#end;
      const missing = block + size - this.#memory.buffer.byteLength;
      try {
        if (missing > 0) this.#memory.grow(Math.ceil(missing / 65536));
      } catch {
        throw new RangeError(`out of memory: ${bytes} bytes are not available`);
      }
      this.#end += size;
      this.#blocks.set(block, size);
    }
    return block;
  }

  /** As compiled code takes it, through which nothing may be thrown: its stack would stay as it is. */
  #try(bytes) {
    try {
      return this.take(Number(bytes));
    } catch (error) {
      this.refused = error.message;
      return 0;
    }
  }

  /** Copy an array to where it is told, or to a block of its own, and give the address. */
  put(array, at = this.take(array.byteLength)) {
    new Uint8Array(this.#memory.buffer, at, array.byteLength).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    return at;
  }

  /** Numbers of 64 bits. */
  numbers(at, count) {
    return Array.from(new BigUint64Array(this.#memory.buffer, at, count), Number);
  }

  /** A copy of an array. */
  copy(Type, at, count) {
    return new Type(this.#memory.buffer.slice(at, at + count * Type.BYTES_PER_ELEMENT));
  }
}

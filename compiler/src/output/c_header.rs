//! The C header that goes with an object: the names in it, and where all sizes are fixed, a function that runs the model without any runtime.
use super::artifact::Artifact;
use numrsc_passes::emit;
use numrsc_runtime::{
    DType,
    artifact::{DATA_ALIGN, DimSpec, FORMAT_VERSION, LabelsSpec, PortSpec, PortTypeSpec},
};
use std::collections::BTreeMap;

/// What a C program includes to use the names of an object, which start with `symbol`.
/// `needs` are what the object asks of the linker.
pub fn header(artifact: &Artifact, symbol: &str, needs: &[String]) -> String {
    let manifest = &artifact.manifest;
    let ports = |ports: &[PortSpec], labels: &BTreeMap<usize, LabelsSpec>| -> String {
        let line = |(i, p): (usize, &PortSpec)| {
            let labels = labels.get(&i).map_or(String::new(), |l| format!(" for {}", comment(&l.to_string())));
            format!(" *   {}: {}{labels}\n", comment(&p.name), comment(&p.type_text))
        };
        ports.iter().enumerate().map(line).collect()
    };
    let features = match &manifest.cpu_features[..] {
        [] => String::new(),
        features => format!("\n * It needs a CPU with {}", features.join(", ")),
    };
    let needs = match needs {
        [] => "It calls no function of any library".to_owned(),
        needs => format!(
            "It calls functions of the compiler's library (libgcc or compiler-rt), only these: {}",
            needs.join(", ")
        ),
    };
    let (model, producer, triple) = (comment(&manifest.model), &manifest.producer, &manifest.target_triple);
    let (inputs, outputs) = (ports(&manifest.inputs, &BTreeMap::new()), ports(&manifest.outputs, &manifest.labels));
    let (by_itself, context, run) = match Run::of(artifact, symbol) {
        Some(run) => {
            (run.introduction(), CONTEXT.replace("VERSION", &FORMAT_VERSION.to_string()), run.functions(artifact))
        }
        None => (String::new(), "struct numrsc_run_context;\n".to_owned(), String::new()),
    };
    let with_runtime = if artifact.whole.is_some() { String::new() } else { with_runtime(symbol) };
    format!(
        "/* The model `{model}`, compiled by {producer} for {triple}{features}.
 * {needs}.
 *
 * Tensors are arrays without gaps in which the last index varies fastest, as in C.
 * Inputs:
{inputs} * Outputs:
{outputs} *
{by_itself}{with_runtime} * A program with a runtime of its own fills in a run context of version {FORMAT_VERSION} (runtime-min/src/context.rs) and calls the entry, which
 * gives 0 or 1 more than the position of the failure's message in the manifest. */
#ifndef NUMRSC_MODEL_{symbol}_H
#define NUMRSC_MODEL_{symbol}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {{
#endif

{context}
int32_t {symbol}_entry(struct numrsc_run_context *context);

/* Inputs, outputs and needs of the model, in the runtime's format. A linker that drops what nobody refers to (--gc-sections) leaves it out of programs
 * without the runtime. */
extern const uint8_t {symbol}_manifest[];
extern const uint64_t {symbol}_manifest_size;

/* Read-only and never copied: they can stay in flash. Aligned to {DATA_ALIGN} bytes. */
extern const uint8_t {symbol}_weights[];
extern const uint64_t {symbol}_weights_size;
{run}
#ifdef __cplusplus
}}
#endif

#endif
"
    )
}

/// How a program with the runtime uses the names.
fn with_runtime(symbol: &str) -> String {
    format!(
        "\
 * The runtime makes a model of these parts, in C with numrsc.h:
 *
 *   numrsc_model *model;
 *   numrsc_error *error = numrsc_from_parts({symbol}_manifest, {symbol}_manifest_size, {symbol}_entry, {symbol}_weights,
 *                                           {symbol}_weights_size, &model);
 *
 * In Rust:
 *
 *   extern \"C\" {{
 *       fn {symbol}_entry(context: *mut numrsc_runtime::context::RunContext) -> i32;
 *       static {symbol}_manifest: u8;
 *       static {symbol}_manifest_size: u64;
 *       static {symbol}_weights: u8;
 *       static {symbol}_weights_size: u64;
 *   }}
 *   let part = |start: *const u8, size: u64| std::slice::from_raw_parts(start, size as usize);
 *   let model = numrsc_runtime::Model::from_parts(
 *       part(&raw const {symbol}_manifest, {symbol}_manifest_size),
 *       {symbol}_entry,
 *       part(&raw const {symbol}_weights, {symbol}_weights_size),
 *   )?;
 *
"
    )
}

/// Bytes of the memory that the function works in, if there is one.
pub(crate) fn memory_bytes(artifact: &Artifact) -> Option<u64> {
    Run::of(artifact, "").map(|run| run.arena_bytes)
}

/// What the code may ask for while it runs, as far as a model of fixed sizes on one thread does. All slots have 64 bits on every target.
const CONTEXT: &str = "\
#ifndef NUMRSC_RUN_CONTEXT_VERSION
#define NUMRSC_RUN_CONTEXT_VERSION

struct numrsc_tensor_slots {
  uint64_t data, sizes, room, given;
};

struct numrsc_run_context {
  uint64_t weights, arena, arena_bytes, inputs, outputs, threads;
  uint64_t fn_arena, fn_alloc, fn_free, fn_parallel, state, busy;
};

typedef int32_t (*numrsc_kernel)(const uint64_t *args, int64_t begin, int64_t end, int64_t worker);

static inline void *numrsc_fixed_arena(struct numrsc_run_context *context, int64_t bytes) {
  return (uint64_t)bytes <= context->arena_bytes ? (void *)(uintptr_t)context->arena : NULL;
}

static inline void *numrsc_fixed_alloc(struct numrsc_run_context *context, int64_t bytes) {
  (void)context;
  (void)bytes;
  return NULL;
}

static inline void *numrsc_fixed_free(struct numrsc_run_context *context, void *block) {
  (void)context;
  (void)block;
  return NULL;
}

static inline int32_t numrsc_fixed_parallel(struct numrsc_run_context *context, numrsc_kernel kernel, const uint64_t *args,
                                            int64_t extent, int64_t grain) {
  (void)context;
  (void)grain;
  return extent > 0 ? kernel(args, 0, extent, 0) : 0;
}

#endif
";

/// A model that can run in memory whose size is known.
struct Run<'a> {
    symbol: &'a str,
    arena_bytes: u64,
    /// What the address of the memory is a multiple of.
    align: usize,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

/// A parameter of the function.
struct Tensor {
    name: String,
    element: &'static str,
    sizes: Vec<u64>,
    bytes: u64,
}

impl<'a> Run<'a> {
    fn of(artifact: &Artifact, symbol: &'a str) -> Option<Run<'a>> {
        let manifest = &artifact.manifest;
        if manifest.needs_heap {
            return None;
        }
        let arena = artifact.memory().arena_bytes(&|s| (**s == *emit::THREADS).then_some(1))?;
        let tensors = |ports: &[PortSpec], kind: &str| -> Option<Vec<Tensor>> {
            let tensors: Vec<Tensor> = ports.iter().map(|port| Tensor::of(port, kind)).collect::<Option<_>>()?;
            let distinct: std::collections::BTreeSet<&str> = tensors.iter().map(|t| &t.name[..]).collect();
            (distinct.len() == tensors.len()).then_some(tensors)
        };
        Some(Run {
            symbol,
            // There are no arrays of nothing in C.
            arena_bytes: arena.max(1).next_multiple_of(DATA_ALIGN as u64),
            // Without vectors, that of the largest element does.
            align: if artifact.whole.is_some() { size_of::<u64>() } else { DATA_ALIGN },
            inputs: tensors(&manifest.inputs, "in")?,
            outputs: tensors(&manifest.outputs, "out")?,
        })
    }

    fn introduction(&self) -> String {
        let symbol = self.symbol;
        format!(
            " * {symbol}_run runs it on one thread, without a runtime, an allocator or any other library. {symbol}_MEMORY_BYTES and the size\n \
             * of the weights tell what RAM and flash it takes, besides code and stack.\n *\n"
        )
    }

    fn functions(&self, artifact: &Artifact) -> String {
        let Run { symbol, arena_bytes, align, inputs, outputs } = self;
        let parameters: String = inputs.iter().map(|t| format!("const {} *{}, ", t.element, t.name)).collect();
        let parameters: String =
            outputs.iter().fold(parameters, |text, t| text + &format!("{} *{}, ", t.element, t.name));
        let elements = |tensors: &[Tensor]| -> String {
            let one = |t: &Tensor| {
                format!(" *   {}: {} elements, {} bytes\n", t.name, t.sizes.iter().product::<u64>(), t.bytes)
            };
            tensors.iter().map(one).collect()
        };
        let described = elements(inputs) + &elements(outputs);
        let example = match align {
            8 => format!("static uint64_t memory[{symbol}_MEMORY_BYTES / 8];"),
            _ => format!("static _Alignas({align}) uint8_t memory[{symbol}_MEMORY_BYTES];"),
        };
        let sizes = |tensors: &[Tensor]| -> String {
            let one = |t: &Tensor| {
                let numbers: Vec<String> = t.sizes.iter().map(ToString::to_string).collect();
                // Scalars have none, and C has no empty arrays.
                let numbers = if numbers.is_empty() { "0".to_owned() } else { numbers.join(", ") };
                format!("  int64_t {}_sizes[] = {{{numbers}}};\n", t.name)
            };
            tensors.iter().map(one).collect()
        };
        let sizes = sizes(inputs) + &sizes(outputs);
        let slots = |tensors: &[Tensor], room: bool| -> String {
            let one = |t: &Tensor| {
                let room = if room { t.bytes } else { 0 };
                format!("    {{(uint64_t)(uintptr_t){0}, (uint64_t)(uintptr_t){0}_sizes, {room}, 0}},\n", t.name)
            };
            // As above.
            if tensors.is_empty() { "    {0, 0, 0, 0},\n".to_owned() } else { tensors.iter().map(one).collect() }
        };
        let (input_slots, output_slots) = (slots(inputs, false), slots(outputs, true));
        // Results may be where they were already: in the weights or in an input.
        let copy = |(i, t): (usize, &Tensor)| {
            let (name, bytes) = (&t.name, t.bytes);
            format!(
                "  if (code == 0 && outputs[{i}].data != (uint64_t)(uintptr_t){name}) {{
    const uint8_t *from = (const uint8_t *)(uintptr_t)outputs[{i}].data;
    for (size_t at = 0; at < {bytes}; at++) ((uint8_t *){name})[at] = from[at];
  }}\n"
            )
        };
        let copies: String = outputs.iter().enumerate().map(copy).collect();
        let message = |(at, text): (usize, &String)| format!("    case {}: return \"{}\";\n", at + 1, literal(text));
        let messages: String = artifact.manifest.failures.iter().enumerate().map(message).collect();
        format!(
            "
/* Bytes of memory that {symbol}_run works in, and what its address has to be a multiple of. */
#define {symbol}_MEMORY_BYTES {arena_bytes}
#define {symbol}_MEMORY_ALIGN {align}

/* Run the model once.
 *
{described} *   memory: {symbol}_MEMORY_BYTES bytes, like
 *     {example}
 *   which need not be initialised, hold nothing between runs, and may be used for other things then.
 *
 * Inputs are not changed. Outputs overlap neither each other nor inputs nor memory; all are aligned like their elements.
 * Gives 0; or -1 if the memory is not aligned; or a larger number if the data is such that the model cannot run (an index that is out of range, say):
 * {symbol}_message tells which, and outputs are undefined then.
 *
 * There is no other state: threads and interrupts may run it at the same time, each with its own memory and outputs. It neither waits nor allocates.
 * Of the stack it takes a fixed number of bytes, for most models less than a kilobyte: tensors are in memory. A floating-point unit has to be
 * switched on before. */
static inline int32_t {symbol}_run({parameters}void *memory) {{
{sizes}  struct numrsc_tensor_slots inputs[] = {{
{input_slots}  }};
  struct numrsc_tensor_slots outputs[] = {{
{output_slots}  }};
  struct numrsc_run_context context = {{
    (uint64_t)(uintptr_t){symbol}_weights, (uint64_t)(uintptr_t)memory, {symbol}_MEMORY_BYTES,
    (uint64_t)(uintptr_t)inputs, (uint64_t)(uintptr_t)outputs, 1,
    (uint64_t)(uintptr_t)numrsc_fixed_arena, (uint64_t)(uintptr_t)numrsc_fixed_alloc,
    (uint64_t)(uintptr_t)numrsc_fixed_free, (uint64_t)(uintptr_t)numrsc_fixed_parallel, 0, 0,
  }};
  int32_t code;
  if ((uintptr_t)memory % {symbol}_MEMORY_ALIGN != 0) return -1;
  code = {symbol}_entry(&context);
{copies}  return code;
}}

/* What {symbol}_run says by a code, in English. */
static inline const char *{symbol}_message(int32_t code) {{
  switch (code) {{
    case 0: return \"success\";
    case -1: return \"the memory is not aligned\";
{messages}    default: return \"unknown\";
  }}
}}
"
        )
    }
}

impl Tensor {
    fn of(port: &PortSpec, kind: &str) -> Option<Tensor> {
        let PortTypeSpec::Tensor { dims } = &port.ty else { return None };
        let size = |dim: &DimSpec| if let DimSpec::Fixed(size) = dim { Some(*size) } else { None };
        let sizes: Vec<u64> = dims.iter().map(size).collect::<Option<_>>()?;
        let bytes = sizes.iter().product::<u64>() * port.dtype.size() as u64;
        let name: String = port.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        Some(Tensor { name: format!("{kind}_{name}"), element: c_type(port.dtype)?, sizes, bytes })
    }
}

/// Types that C lacks are their bits.
fn c_type(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Str => return None,
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I8 | DType::I4 | DType::I2 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        _ => "uint8_t",
    })
}

/// Names are the model's: they must not end the comment.
fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace(['\n', '\r'], " ")
}

/// Nor a string; whatever is not plain is replaced, which also keeps trigraphs out.
fn literal(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '?') || c == ' ' { c } else { '\'' };
    text.chars().map(plain).collect()
}

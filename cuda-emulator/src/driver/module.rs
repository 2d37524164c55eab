//! Modules and functions: PTX that was loaded.
use super::{config::Config, device::SHARED_BYTES, error::Code};
use crate::{
    decode::{Program, decode},
    exec::Global,
    ptx::{self, Space},
};
use std::{collections::HashMap, sync::Arc};

/// Bytes of parameters of a kernel at most.
const MAX_PARAM_BYTES: u64 = 4352;

/// A loaded module.
#[derive(Debug)]
pub(super) struct Module {
    pub functions: HashMap<String, Arc<Function>>,
    /// Where variables of global and constant memory lie, and their sizes.
    pub variables: HashMap<String, (u64, u64)>,
}

/// A kernel with the module's variables.
#[derive(Debug)]
pub(super) struct Function {
    pub program: Program,
    pub addresses: HashMap<String, u64>,
    pub has_dynamic_shared: bool,
}

/// What is wrong with a module: the code, and the text for the log.
type Refused = (Code, String);

impl Module {
    pub(super) fn load(text: &str, config: &Config, memory: &mut Global) -> Result<Module, Refused> {
        let invalid = |e: ptx::SyntaxError| (Code::INVALID_PTX, format!("ptxas error: {e}"));
        let parsed = ptx::parse(text).map_err(invalid)?;
        if parsed.version > config.ptx_version() {
            let (major, minor) = parsed.version;
            return Err((Code::UNSUPPORTED_PTX_VERSION, format!("PTX {major}.{minor} is newer than this driver")));
        }
        let target = parsed.target.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic);
        if target.parse::<u32>().is_ok_and(|sm| sm > config.capability) {
            return Err((Code::NO_BINARY_FOR_GPU, format!("`{}` is newer than this device", parsed.target)));
        }
        let programs = parsed.entries.iter().map(|e| decode(&parsed, e)).collect::<Result<Vec<_>, _>>();
        let programs = programs.map_err(invalid)?;
        for program in &programs {
            let refuse = |what: String| Err((Code::INVALID_PTX, format!("ptxas error: `{}`: {what}", program.name)));
            if program.shared_bytes > u64::from(SHARED_BYTES) {
                return refuse(format!("{} bytes of shared memory", program.shared_bytes));
            }
            if program.param_bytes > MAX_PARAM_BYTES {
                return refuse(format!("{} bytes of parameters", program.param_bytes));
            }
        }
        let own = parsed.entries.iter().flat_map(|e| &e.variables);
        let mut variables = HashMap::new();
        for variable in parsed.variables.iter().chain(own).filter(|v| v.space != Space::Shared) {
            let allocation = memory.allocate(variable.bytes.max(1), variable.space == Space::Const);
            let mut content = variable.init.clone();
            // What is not initialised is 0, as in C.
            content.resize(variable.bytes as usize, 0);
            allocation.write(allocation.base, &content);
            variables.insert(variable.name.clone(), (allocation.base, variable.bytes));
        }
        let addresses: HashMap<String, u64> = variables.iter().map(|(name, (at, _))| (name.clone(), *at)).collect();
        let dynamic = parsed.variables.iter().any(|v| v.space == Space::Shared && v.bytes == 0);
        let functions = programs.into_iter().map(|program| {
            let (name, addresses) = (program.name.clone(), addresses.clone());
            (name, Arc::new(Function { program, addresses, has_dynamic_shared: dynamic }))
        });
        Ok(Module { functions: functions.collect(), variables })
    }
}

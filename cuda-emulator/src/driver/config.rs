//! What the emulated machine is like: `NUMRSC_CUDA_EMULATOR=memory=64M,driver=11080,fail=cuMemAlloc_v2:3:2`.
use super::error::Code;
use crate::exec::Order;
use std::{collections::HashMap, path::PathBuf};

/// The variable that all of it comes from.
pub(super) const VARIABLE: &str = "NUMRSC_CUDA_EMULATOR";

#[derive(Clone, Debug)]
pub(super) struct Config {
    /// What `cuInit` gives.
    pub init: Option<Code>,
    pub devices: i32,
    /// As `cuDriverGetVersion` has it: 12040 for 12.4.
    pub driver: i32,
    /// 75 for 7.5.
    pub capability: u32,
    pub memory: u64,
    pub order: Order,
    /// Calls that fail: by name, the number of the call from 1 on, and the code.
    pub failures: HashMap<String, (u32, Code)>,
    /// A file that gets a line of JSON for every launch.
    pub report: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            init: None,
            devices: 1,
            driver: 12040,
            capability: 75,
            memory: 4 << 30,
            order: Order::Forward,
            failures: HashMap::new(),
            report: None,
        }
    }
}

impl Config {
    /// What the environment says; what is wrong with it.
    pub(super) fn from_environment() -> Result<Config, String> {
        std::env::var(VARIABLE).map_or_else(|_| Ok(Config::default()), |text| Config::parse(&text))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let wrong = || format!("{VARIABLE}: `{part}` is not understood");
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
            match key {
                "init" => config.init = Some(Code(number(value)?)),
                "devices" => config.devices = number(value)?.cast_signed(),
                "driver" => config.driver = number(value)?.cast_signed(),
                "capability" => config.capability = number(value)?,
                "memory" => config.memory = bytes(value).ok_or_else(wrong)?,
                "order" => {
                    config.order = match value {
                        "forward" => Order::Forward,
                        "backward" => Order::Backward,
                        seed => Order::Shuffled(seed.parse().map_err(|_| wrong())?),
                    }
                }
                "fail" => {
                    let parts: Vec<&str> = value.split(':').collect();
                    let [function, call, code] = parts[..] else { return Err(wrong()) };
                    config.failures.insert(function.to_owned(), (number(call)?, Code(number(code)?)));
                }
                "report" => config.report = Some(value.into()),
                _ => return Err(wrong()),
            }
        }
        Ok(config)
    }

    /// The newest version of PTX that a driver of this version reads.
    pub(super) fn ptx_version(&self) -> (u32, u32) {
        const VERSIONS: [(i32, (u32, u32)); 14] = [
            (13020, (9, 2)),
            (13010, (9, 1)),
            (13000, (9, 0)),
            (12090, (8, 8)),
            (12080, (8, 7)),
            (12060, (8, 5)),
            (12040, (8, 4)),
            (12030, (8, 3)),
            (12020, (8, 2)),
            (12010, (8, 1)),
            (12000, (8, 0)),
            (11080, (7, 8)),
            (11040, (7, 4)),
            (11000, (7, 0)),
        ];
        VERSIONS.iter().find(|v| self.driver >= v.0).map_or((6, 5), |v| v.1)
    }
}

/// `64M`, `2G`, or bytes.
fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 10),
        Some(digits) if text.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_understood_or_named() {
        let config = Config::parse("memory=64M,driver=11040,order=7,fail=cuLaunchKernel:2:700").unwrap();
        assert_eq!((config.memory, config.ptx_version(), config.order), (64 << 20, (7, 4), Order::Shuffled(7)));
        assert_eq!(config.failures["cuLaunchKernel"], (2, Code::ILLEGAL_ADDRESS));
        for wrong in ["memory=lots", "colour=blue", "fail=cuInit", "devices"] {
            assert!(Config::parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}

//! The state of the driver in this process.
use super::{
    config::Config,
    error::Code,
    module::{Function, Module},
    work::{self, Event, Host, Kernel, Stream, Work},
};
use crate::exec::{Allocation, Global, Launch, Report};
use std::{
    collections::{BTreeMap, HashMap},
    fs::OpenOptions,
    io::Write as _,
    sync::Arc,
};

pub(super) type Outcome<T = ()> = Result<T, Code>;

/// The handle of the one context there is.
pub(super) const CONTEXT: u64 = 0xc0de_0000;
/// What freed page-locked memory is filled with.
const FREED: u8 = 0xa5;

#[derive(Debug)]
pub(super) struct Driver {
    pub config: Config,
    is_initialised: bool,
    /// The process that initialised the driver: a fork of it cannot use it.
    process: u32,
    pub calls: HashMap<String, u32>,
    /// How often the primary context is held.
    retained: u32,
    /// What went wrong in a kernel: every later call gives it again.
    failed: Option<Code>,
    pub memory: Global,
    modules: HashMap<u64, Module>,
    functions: HashMap<u64, (Arc<Function>, u64, u32)>,
    streams: BTreeMap<u64, Stream>,
    events: HashMap<u64, Event>,
    /// Page-locked memory by its address. What was freed stays, filled with something else, as work may still refer to it.
    locked: BTreeMap<usize, Locked>,
    next: u64,
}

#[derive(Debug)]
struct Locked {
    bytes: Box<[u64]>,
    is_freed: bool,
}

impl Driver {
    pub(super) fn new(config: Config) -> Driver {
        Driver {
            config,
            is_initialised: false,
            process: std::process::id(),
            calls: HashMap::new(),
            retained: 0,
            failed: None,
            memory: Global::default(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            streams: BTreeMap::new(),
            events: HashMap::new(),
            locked: BTreeMap::new(),
            next: 0x1000,
        }
    }

    /// What a call gives before it does anything.
    pub(super) fn enter(&mut self, call: &str) -> Outcome {
        let count = self.calls.entry(call.to_owned()).or_default();
        *count += 1;
        match self.config.failures.get(call) {
            Some((at, code)) if at == count => Err(*code),
            _ if self.process != std::process::id() => Err(Code::NOT_INITIALIZED),
            _ => Ok(()),
        }
    }

    pub(super) fn initialise(&mut self) -> Outcome {
        if let Some(code) = self.config.init {
            return Err(code);
        }
        if self.config.devices == 0 {
            return Err(Code::NO_DEVICE);
        }
        self.is_initialised = true;
        Ok(())
    }

    pub(super) fn initialised(&self) -> Outcome {
        if self.is_initialised { Ok(()) } else { Err(Code::NOT_INITIALIZED) }
    }

    pub(super) fn device(&self, number: i32) -> Outcome {
        self.initialised()?;
        if (0..self.config.devices).contains(&number) { Ok(()) } else { Err(Code::INVALID_DEVICE) }
    }

    /// The context that is current works.
    pub(super) fn context(&self, current: u64) -> Outcome {
        self.initialised()?;
        if current != CONTEXT || self.retained == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        self.failed.map_or(Ok(()), Err)
    }

    pub(super) fn retain(&mut self) -> u64 {
        self.retained += 1;
        CONTEXT
    }

    /// Nobody holds it any more: all that it had is gone, also what went wrong.
    pub(super) fn release(&mut self) -> Outcome {
        self.retained = self.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        if self.retained == 0 {
            let (config, calls, next) = (self.config.clone(), std::mem::take(&mut self.calls), self.next);
            let locked = std::mem::take(&mut self.locked);
            *self = Driver { calls, next, locked, is_initialised: true, ..Driver::new(config) };
        }
        Ok(())
    }

    fn handle(&mut self) -> u64 {
        self.next += 0x10;
        self.next
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.config.memory.saturating_sub(self.memory.used)
    }

    pub(super) fn allocate(&mut self, bytes: u64) -> Outcome<u64> {
        match bytes {
            0 => Err(Code::INVALID_VALUE),
            _ if bytes > self.free_bytes() => Err(Code::OUT_OF_MEMORY),
            _ => Ok(self.memory.allocate(bytes, false).base),
        }
    }

    /// Freeing waits for all that is under way.
    pub(super) fn free(&mut self, address: u64) -> Outcome {
        if address == 0 {
            return Ok(());
        }
        self.finish_all()?;
        if self.memory.free(address) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    pub(super) fn lock_host(&mut self, bytes: usize) -> Outcome<usize> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut memory = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        let address = memory.as_mut_ptr() as usize;
        self.locked.insert(address, Locked { bytes: memory, is_freed: false });
        Ok(address)
    }

    pub(super) fn unlock_host(&mut self, address: usize) -> Outcome {
        match self.locked.get_mut(&address) {
            Some(locked) if !locked.is_freed => {
                locked.bytes.fill(u64::from_le_bytes([FREED; 8]));
                locked.is_freed = true;
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Is this range page-locked?
    pub(super) fn is_locked(&self, address: usize, bytes: usize) -> bool {
        let below = self.locked.range(..=address).next_back();
        below.is_some_and(|(at, locked)| !locked.is_freed && address + bytes <= at + 8 * locked.bytes.len())
    }

    pub(super) fn load(&mut self, text: &str) -> Result<u64, (Code, String)> {
        let module = Module::load(text, &self.config, &mut self.memory)?;
        let handle = self.handle();
        self.modules.insert(handle, module);
        Ok(handle)
    }

    pub(super) fn unload(&mut self, module: u64) -> Outcome {
        self.finish_all()?;
        let module = self.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
        let all_there = module.variables.values().all(|(at, _)| self.memory.free(*at));
        debug_assert!(all_there, "variables lie in memory as long as their module");
        Ok(())
    }

    pub(super) fn function(&mut self, module: u64, name: &str) -> Outcome<u64> {
        let function = self.modules.get(&module).ok_or(Code::INVALID_HANDLE)?.functions.get(name);
        let function = Arc::clone(function.ok_or(Code::NOT_FOUND)?);
        let handle = self.handle();
        self.functions.insert(handle, (function, module, 0));
        Ok(handle)
    }

    pub(super) fn variable(&self, module: u64, name: &str) -> Outcome<(u64, u64)> {
        let module = self.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        module.variables.get(name).copied().ok_or(Code::NOT_FOUND)
    }

    /// A function, and the shared memory that it may have.
    pub(super) fn of_handle(&self, function: u64) -> Outcome<(Arc<Function>, u32)> {
        let (function, module, asked) = self.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        if self.modules.contains_key(module) { Ok((Arc::clone(function), *asked)) } else { Err(Code::INVALID_HANDLE) }
    }

    pub(super) fn ask_shared(&mut self, function: u64, bytes: u32) -> Outcome {
        self.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)?.2 = bytes;
        Ok(())
    }

    pub(super) fn new_stream(&mut self) -> u64 {
        let handle = self.handle();
        self.streams.insert(handle, Stream::default());
        handle
    }

    pub(super) fn drop_stream(&mut self, stream: u64) -> Outcome {
        self.finish(stream)?;
        self.streams.remove(&stream).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    pub(super) fn new_event(&mut self) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event::default());
        handle
    }

    pub(super) fn drop_event(&mut self, event: u64) -> Outcome {
        self.events.remove(&event).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    pub(super) fn record(&mut self, event: u64, stream: u64) -> Outcome {
        let state = self.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)?;
        state.recorded += 1;
        state.stream = stream;
        let number = state.recorded;
        self.enqueue(stream, Work::Record { event, number })
    }

    pub(super) fn wait(&mut self, stream: u64, event: u64) -> Outcome {
        let number = self.events.get(&event).ok_or(Code::INVALID_HANDLE)?.recorded;
        self.enqueue(stream, Work::Wait { event, number })
    }

    /// Has a record been reached? If not, its stream does a little more.
    pub(super) fn query_event(&mut self, event: u64) -> Outcome {
        let state = self.events.get(&event).ok_or(Code::INVALID_HANDLE)?;
        if state.reached >= state.recorded {
            return Ok(());
        }
        let stream = state.stream;
        self.step(stream)?;
        Err(Code::NOT_READY)
    }

    pub(super) fn finish_event(&mut self, event: u64) -> Outcome {
        let recorded = self.events.get(&event).ok_or(Code::INVALID_HANDLE)?.recorded;
        self.reach(event, recorded)
    }

    pub(super) fn query_stream(&mut self, stream: u64) -> Outcome {
        if self.stream(stream)?.queue.is_empty() {
            return Ok(());
        }
        self.step(stream)?;
        Err(Code::NOT_READY)
    }

    fn stream(&mut self, stream: u64) -> Outcome<&mut Stream> {
        if stream <= 2 {
            // The default streams are there from the start.
            return Ok(self.streams.entry(0).or_default());
        }
        self.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)
    }

    /// Work for a stream. The default stream waits for all others, and they for it.
    pub(super) fn enqueue(&mut self, stream: u64, work: Work) -> Outcome {
        if stream <= 2 {
            self.finish_all()?;
        }
        self.stream(stream)?.queue.push_back(work);
        if stream <= 2 { self.finish(0) } else { Ok(()) }
    }

    pub(super) fn finish(&mut self, stream: u64) -> Outcome {
        while !self.stream(stream)?.queue.is_empty() {
            self.step(stream)?;
        }
        Ok(())
    }

    pub(super) fn finish_all(&mut self) -> Outcome {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.finish(stream))
    }

    /// Do the next piece of work of a stream. What goes wrong stays wrong.
    fn step(&mut self, stream: u64) -> Outcome {
        let Some(work) = self.stream(stream)?.queue.pop_front() else { return Ok(()) };
        let done = self.perform(work);
        if let Err(code) = done {
            self.failed = Some(code);
            self.streams.values_mut().for_each(|s| s.queue.clear());
        }
        done
    }

    /// Run the stream of an event until a record of it is reached.
    fn reach(&mut self, event: u64, number: u64) -> Outcome {
        while let Some(state) = self.events.get(&event).filter(|e| e.reached < number) {
            let stream = state.stream;
            if self.stream(stream)?.queue.is_empty() {
                break;
            }
            self.step(stream)?;
        }
        Ok(())
    }

    fn range(&self, address: u64, bytes: u64) -> Outcome<Arc<Allocation>> {
        self.memory.find(address, bytes).map(Arc::clone).ok_or(Code::INVALID_VALUE)
    }

    /// Is this device memory? Asked when work is given, as the driver does.
    pub(super) fn check_range(&self, address: u64, bytes: u64) -> Outcome {
        if bytes == 0 { Ok(()) } else { self.range(address, bytes).map(|_| ()) }
    }

    fn perform(&mut self, work: Work) -> Outcome {
        match work {
            Work::ToDevice { to, from } => match from {
                Host::Copied(bytes) => {
                    self.range(to, bytes.len() as u64)?.write(to, &bytes);
                    Ok(())
                }
                Host::Locked { address, bytes } => {
                    let content = self.read_locked(address, bytes)?;
                    self.range(to, bytes as u64)?.write(to, &content);
                    Ok(())
                }
            },
            Work::ToHost { to, from, bytes } => {
                let mut content = vec![0; bytes];
                self.copy_out(from, &mut content)?;
                self.write_locked(to, &content)
            }
            Work::Copy { to, from, bytes } => {
                let (target, source) = (self.range(to, bytes)?, self.range(from, bytes)?);
                target.copy(to, &source, from, bytes);
                Ok(())
            }
            Work::Fill { to, value, bytes } => {
                self.range(to, bytes)?.write(to, &vec![value; bytes as usize]);
                Ok(())
            }
            Work::Launch(kernel) => self.launch(&kernel),
            Work::Record { event, number } => {
                if let Some(state) = self.events.get_mut(&event) {
                    state.reached = state.reached.max(number);
                }
                Ok(())
            }
            Work::Wait { event, number } => self.reach(event, number),
        }
    }

    /// Copy from the device. What was never written is told: the caller is about to use it.
    pub(super) fn copy_out(&self, from: u64, to: &mut [u8]) -> Outcome {
        if to.is_empty() {
            return Ok(());
        }
        if let Some(at) = self.range(from, to.len() as u64)?.read(from, to) {
            say(&format!("copied to the host: memory at {at:#x}, which was never written"));
            return Err(Code::LAUNCH_FAILED);
        }
        Ok(())
    }

    fn read_locked(&self, address: usize, bytes: usize) -> Outcome<Vec<u8>> {
        let (at, locked) = self.locked.range(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        if locked.is_freed {
            say("page-locked memory was freed before it was copied to the device");
        }
        let all = locked.bytes.iter().flat_map(|word| word.to_le_bytes());
        Ok(all.skip(address - at).take(bytes).collect())
    }

    fn write_locked(&mut self, address: usize, content: &[u8]) -> Outcome {
        let (at, locked) = self.locked.range_mut(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        if locked.is_freed {
            say("page-locked memory was freed before the device was copied to it");
            return Err(Code::ILLEGAL_ADDRESS);
        }
        for (i, &byte) in content.iter().enumerate() {
            let place = address - at + i;
            let mut word = locked.bytes[place / 8].to_le_bytes();
            word[place % 8] = byte;
            locked.bytes[place / 8] = u64::from_le_bytes(word);
        }
        Ok(())
    }

    fn launch(&mut self, kernel: &Kernel) -> Outcome {
        let function = &kernel.function;
        let shape = [kernel.grid, kernel.threads];
        let memory = self.memory.snapshot();
        let launch = Launch::new(&function.program, shape, &kernel.params, &function.addresses, memory);
        let report: Report = launch.dynamic_shared(kernel.shared.into()).order(self.config.order).run();
        report.findings.iter().chain(&report.fault).for_each(|fault| say(&fault.to_string()));
        if let Some(path) = &self.config.report {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let written = file.and_then(|mut f| writeln!(f, "{}", work::line(kernel, &report)));
            if let Err(error) = written {
                say(&format!("{}: {error}", path.display()));
            }
        }
        work::code(&report).map_or(Ok(()), Err)
    }
}

/// Findings go where people look, whoever asked for the run.
pub(super) fn say(text: &str) {
    eprintln!("CUDA emulator (not a GPU): {text}");
}

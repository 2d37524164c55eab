//! Asking `numrsc-llvm`: where it is, and a pool of its processes, one for each thread that compiles.
use crate::{Error, Result};
use numrsc_llvm::protocol::{self, Answer, Machine, Request};
use std::{
    env, fmt,
    io::{self, BufRead, BufReader, BufWriter, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The variable that names the program.
pub const VARIABLE: &str = "NUMRSC_LLVM";

/// What to do where the program is not there.
const INSTALL: &str = "`cargo install numrsc` with Rust 1.95 installs it beside numrsc";

/// How long a process without work is kept: the next model of a script or test need not wait for LLVM to be loaded again.
const LINGER: Duration = Duration::from_secs(5);

/// `numrsc-llvm`, with the LLVM it has. Processes are started when they are needed.
pub struct Service {
    path: PathBuf,
    version: String,
    library: PathBuf,
    host: OnceLock<Machine>,
    idle: Mutex<Idle>,
}

/// Processes that wait, the one that has waited longest first, and whether a thread looks after them.
#[derive(Default)]
struct Idle {
    processes: Vec<(Instant, Process)>,
    watched: bool,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

impl Service {
    /// The program, by the first of these: the variable names it, it was built along with this library, it lies beside the program that runs, or
    /// it is on the path. Where there is none, the error says where it was looked for, in one line.
    pub fn find() -> Result<&'static Service> {
        static KNOWN: Mutex<Vec<&'static Service>> = Mutex::new(vec![]);
        let places = Places::look();
        let mut known = lock(&KNOWN);
        let mut refused = vec![];
        for path in &places.found {
            if let Some(service) = known.iter().find(|service| service.path == *path) {
                return Ok(service);
            }
            match Service::start(path) {
                Ok(service) => {
                    known.push(service);
                    return Ok(service);
                }
                Err(message) => refused.push(message),
            }
        }
        Err(Error::NoLlvm(places.message(&refused)))
    }

    fn start(path: &Path) -> std::result::Result<&'static Service, String> {
        let (process, version, library) = Process::start(path)?;
        let (path, host) = (path.to_owned(), OnceLock::new());
        // One for each path that there ever was: few, and used until the end.
        let service: &'static Service =
            Box::leak(Box::new(Service { path, version, library, host, idle: Mutex::default() }));
        service.keep(process);
        Ok(service)
    }

    /// Where the program is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of its LLVM.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The file with its LLVM.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// This machine, with all it can do.
    pub fn host(&'static self) -> Result<Machine> {
        if let Some(host) = self.host.get() {
            return Ok(host.clone());
        }
        let texts = match self.ask(&Request::Host, "this machine")? {
            Answer::Parts(parts) => parts.into_iter().map(|part| String::from_utf8_lossy(&part).into_owned()).collect(),
            Answer::Invalid(_) | Answer::Failed(_) => vec![],
        };
        let Ok([triple, cpu, features]) = <[String; 3]>::try_from(texts) else {
            return Err(Error::NoLlvm(format!("{} does not tell which machine this is", self.path.display())));
        };
        Ok(self.host.get_or_init(|| Machine { triple, cpu, features }).clone())
    }

    /// Have a process answer. If LLVM ends it, that is an error of what this was about, and the next request gets another process.
    pub fn ask(&'static self, request: &Request, about: &str) -> Result<Answer> {
        let ended = |message: String| Error::Llvm { module: about.to_owned(), message };
        let mut process = match self.take() {
            Some(process) => process,
            None => Process::start(&self.path).map_err(ended)?.0,
        };
        match process.ask(request) {
            Ok(answer) => {
                self.keep(process);
                Ok(answer)
            }
            Err(e) => Err(ended(process.last_words(&e))),
        }
    }

    /// A process that waits and is still there.
    fn take(&self) -> Option<Process> {
        loop {
            let (_, mut process) = lock(&self.idle).processes.pop()?;
            if matches!(process.child.try_wait(), Ok(None)) {
                return Some(process);
            }
        }
    }

    fn keep(&'static self, process: Process) {
        let mut idle = lock(&self.idle);
        idle.processes.push((Instant::now(), process));
        if !idle.watched {
            idle.watched = thread::Builder::new().spawn(|| self.watch()).is_ok();
        }
    }

    /// End processes that have waited long enough, until there are none.
    fn watch(&self) {
        loop {
            let mut idle = lock(&self.idle);
            idle.processes.retain(|(since, _)| since.elapsed() < LINGER);
            let Some((since, _)) = idle.processes.first() else {
                idle.watched = false;
                return;
            };
            let wait = LINGER.saturating_sub(since.elapsed());
            drop(idle);
            thread::sleep(wait);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the program may be.
struct Places {
    found: Vec<PathBuf>,
    /// Where it was looked for, in words.
    looked: Vec<String>,
}

impl Places {
    fn look() -> Places {
        let name = format!("{}{}", protocol::NAME, env::consts::EXE_SUFFIX);
        if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) {
            let looked = vec![format!("{VARIABLE} names {}", named.display())];
            let found = if named.is_file() { vec![named] } else { vec![] };
            return Places { found, looked };
        }
        let own = numrsc_llvm::running_program();
        let beside = own.as_deref().and_then(Path::parent);
        let path = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&path).filter(|folder| folder.is_absolute());
        let built = numrsc_llvm::BUILT
            .map(PathBuf::from)
            .filter(|built| own.as_deref().is_some_and(|own| same_owner(own, built)));
        let found = built
            .into_iter()
            .chain(beside.map(Path::to_owned).into_iter().chain(on_path).map(|folder| folder.join(&name)));
        let beside = beside.map_or("beside this program".to_owned(), |folder| format!("in {}", folder.display()));
        Places {
            found: found.filter(|path| path.is_file()).collect(),
            looked: vec![beside, "on the path".to_owned(), format!("in {VARIABLE}, which is not set")],
        }
    }

    /// All of it in one line.
    fn message(&self, refused: &[String]) -> String {
        let looked = self.looked.join(", ");
        match refused {
            [] if self.looked.len() == 1 => format!("LLVM cannot be used: {looked}, which is not there; {INSTALL}"),
            [] => format!("LLVM cannot be used: there is no {} {looked}; {INSTALL}", protocol::NAME),
            _ => format!("LLVM cannot be used: {}; {INSTALL}", refused.join("; ")),
        }
    }
}

/// A place in a target folder, which may have been a temporary one, is not to be trusted because it was good once: somebody else may have put something there since.
#[cfg(unix)]
fn same_owner(own: &Path, built: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = |path: &Path| path.symlink_metadata().map(|about| about.uid()).ok();
    owner(own).is_some() && owner(own) == owner(built)
}

#[cfg(not(unix))]
fn same_owner(_: &Path, _: &Path) -> bool {
    false
}

/// The program as it runs. It ends when this is dropped.
struct Process {
    child: Child,
    to: Option<BufWriter<ChildStdin>>,
    from: BufReader<ChildStdout>,
    /// What it says when it ends by itself.
    said: Option<JoinHandle<String>>,
}

impl Process {
    /// With the version and the file of its LLVM.
    fn start(path: &Path) -> std::result::Result<(Process, String, PathBuf), String> {
        let failed = |message: &dyn fmt::Display| format!("{}: {message}", path.display());
        let mut command = Command::new(path);
        command.arg(protocol::SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(&e))?;
        let (Some(to), Some(from), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(&"it has no pipes"));
        };
        let said = thread::Builder::new().spawn(move || first_bytes(errors)).ok();
        let mut process = Process { child, to: Some(BufWriter::new(to)), from: BufReader::new(from), said };
        let mut line = vec![];
        // A line of ours is short, and other programs may say much.
        let read = process.from.by_ref().take(200).read_until(b'\n', &mut line);
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        match line.strip_prefix(protocol::NAME).map(str::trim) {
            Some(protocol::VERSION) => {}
            Some(other) => {
                return Err(failed(&format!("this is version {other}, and {} is needed", protocol::VERSION)));
            }
            None if read.is_ok() && !line.is_empty() => return Err(failed(&format!("this is not {}", protocol::NAME))),
            None => return Err(failed(&process.last_words(&io::ErrorKind::UnexpectedEof.into()))),
        }
        match Answer::read(&mut process.from) {
            Ok(Some(Answer::Parts(parts))) => {
                let text = |at: usize| parts.get(at).map(|part| String::from_utf8_lossy(part).into_owned());
                Ok((process, text(0).unwrap_or_default(), text(1).unwrap_or_default().into()))
            }
            Ok(Some(Answer::Failed(message) | Answer::Invalid(message))) => Err(failed(&message)),
            Ok(None) => Err(failed(&process.last_words(&io::ErrorKind::UnexpectedEof.into()))),
            Err(e) => Err(failed(&process.last_words(&e))),
        }
    }

    fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        let to = self.to.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        request.write(to)?;
        Answer::read(&mut self.from)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// How it ended, after a pipe to it broke.
    fn last_words(mut self, broken: &io::Error) -> String {
        self.to = None;
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let line = said
            .lines()
            .find(|line| line.contains("ERROR"))
            .or_else(|| said.lines().find(|line| !line.trim().is_empty()));
        match (self.child.wait(), line) {
            (Ok(status), Some(line)) => format!("{} ended ({status}): {}", protocol::NAME, line.trim()),
            (Ok(status), None) => format!("{} ended ({status})", protocol::NAME),
            (Err(_), _) => format!("{}: {broken}", protocol::NAME),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Without work it ends by itself as soon as nothing more comes in; it need not be waited for with work.
        self.to = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process says, as much as is worth keeping; the rest is read so that it need not wait.
fn first_bytes(mut from: impl Read) -> String {
    let mut kept = vec![];
    let _ = from.by_ref().take(1 << 14).read_to_end(&mut kept);
    let _ = io::copy(&mut from, &mut io::sink());
    String::from_utf8_lossy(&kept).into_owned()
}

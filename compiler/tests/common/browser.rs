//! Headless Chromium, and a server on this machine that it gets pages from and reports to.
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

/// One page, open until this is dropped.
pub(crate) struct Browser {
    process: Child,
    profile: tempfile::TempDir,
    reports: Receiver<Vec<u8>>,
}

impl Browser {
    /// Open a page of a folder. Whatever it sends by POST is a report.
    pub(crate) fn open(folder: &Path, page: &str) -> Browser {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, reports) = mpsc::channel();
        let folder = folder.to_owned();
        // It ends with the process: nobody else knows of it.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (folder, sender) = (folder.clone(), sender.clone());
                // A browser opens connections before it has something to say.
                std::thread::spawn(move || serve(&stream, &folder, &sender));
            }
        });
        let profile = tempfile::tempdir().unwrap();
        // Debian's name, and Ubuntu's.
        let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        let program = ["chromium", "chromium-browser"].into_iter().find(is_there);
        let mut command = Command::new(program.expect("a browser, which .ci/setup installs"));
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update"]);
        command.args(["--disable-sync", "--disable-extensions", "--no-proxy-server", "--window-size=900,700"]);
        // What a page says of itself would otherwise be lost: it is shown if a test fails.
        command.arg("--enable-logging=stderr").arg(format!("--user-data-dir={}", profile.path().display()));
        command.arg(format!("http://{address}/{page}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(log(profile.path())).unwrap());
        let process = command.spawn().expect("a browser starts");
        Browser { process, profile, reports }
    }

    /// What the page sends next. Nothing that is tested takes nearly as long as the limit.
    pub(crate) fn report(&self) -> Result<Vec<u8>, String> {
        let limit = Duration::from_secs(60);
        let log = || fs::read_to_string(log(self.profile.path())).unwrap_or_default();
        self.reports.recv_timeout(limit).map_err(|e| format!("the page is silent: {e}\n{}", log()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn log(profile: &Path) -> PathBuf {
    profile.join("log.txt")
}

/// Answer one request: a file, or thanks for a report.
fn serve(stream: &TcpStream, folder: &Path, reports: &Sender<Vec<u8>>) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (method, rest) = line.split_once(' ')?;
    let path = rest.split([' ', '?']).next()?.trim_start_matches('/').to_owned();
    let method = method.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let (status, kind, content) = if method == "POST" {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        reports.send(body).ok()?;
        ("200 OK", "text/plain", vec![])
    } else {
        let kind = match path.rsplit('.').next()? {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript",
            "wasm" => "application/wasm",
            _ => "application/octet-stream",
        };
        match fs::read(folder.join(&path)) {
            Ok(content) => ("200 OK", kind, content),
            Err(_) => ("404 Not Found", "text/plain", vec![]),
        }
    };
    let mut stream = stream;
    let length = content.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&content)).ok()
}

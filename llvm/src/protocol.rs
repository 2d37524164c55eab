//! What the compiler and `numrsc-llvm` say to each other: one line when the program starts, then requests and answers by turns.
//!
//! A message is a byte that says what it is, the number of its parts, and the parts, each behind its length.
use std::io::{self, Read, Write};

/// What both sides must agree about: the version of the package, and that of this file.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " protocol 1");

/// What the first line starts with; the version follows.
pub const NAME: &str = "numrsc-llvm";

/// What the program is started with, so that it serves instead of telling what it is.
pub const SERVE: &str = "serve";

/// The first line the program says.
pub fn greeting() -> String {
    format!("{NAME} {VERSION}")
}

/// A machine in LLVM's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub triple: String,
    pub cpu: String,
    pub features: String,
}

/// How much LLVM is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A quick selection of instructions.
    Less,
    /// The usual one.
    Default,
    /// The usual one, and before it LLVM's own passes that make code small.
    Size,
}

/// What LLVM is to make of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Object,
    Assembly,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Which machine is this? Answered by triple, CPU and features.
    Host,
    /// Is there code for this machine? Answered by the triple as LLVM spells it.
    Check(Machine),
    /// Answered by an object or by assembly.
    Compile { module: String, text: String, machine: Machine, level: Level, kind: Kind },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// What was asked for.
    Parts(Vec<Vec<u8>>),
    /// The text is not valid.
    Invalid(String),
    /// LLVM, or the part of it that was asked for, cannot do it.
    Failed(String),
}

impl Request {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Request::Host => write_message(to, 0, &[]),
            Request::Check(m) => write_message(to, 1, &[&m.triple, &m.cpu, &m.features].map(String::as_bytes)),
            Request::Compile { module, text, machine: m, level, kind } => {
                let how = [*level as u8, *kind as u8];
                let texts = [module, text, &m.triple, &m.cpu, &m.features].map(String::as_bytes);
                write_message(to, 2, &[&texts[..], &[&how[..]]].concat())
            }
        }
    }

    /// `None` where nothing more comes.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Request>> {
        let Some((what, parts)) = read_message(from)? else { return Ok(None) };
        let mut parts = parts.into_iter();
        let mut part = || parts.next().ok_or_else(|| invalid("a request without all of its parts"));
        let mut text = || String::from_utf8(part()?).map_err(|_| invalid("a request that is no text"));
        let request = match what {
            0 => Request::Host,
            1 => Request::Check(Machine { triple: text()?, cpu: text()?, features: text()? }),
            2 => {
                let (module, code) = (text()?, text()?);
                let machine = Machine { triple: text()?, cpu: text()?, features: text()? };
                let (level, kind) = match part()?[..] {
                    [level @ 0..=2, kind @ 0..=1] => (
                        [Level::Less, Level::Default, Level::Size][usize::from(level)],
                        [Kind::Object, Kind::Assembly][usize::from(kind)],
                    ),
                    _ => return Err(invalid("a level or a kind that there is not")),
                };
                Request::Compile { module, text: code, machine, level, kind }
            }
            _ => return Err(invalid("a request that there is not")),
        };
        Ok(Some(request))
    }
}

impl Answer {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Answer::Parts(parts) => write_message(to, 0, &parts.iter().map(|part| &part[..]).collect::<Vec<_>>()),
            Answer::Invalid(message) => write_message(to, 1, &[message.as_bytes()]),
            Answer::Failed(message) => write_message(to, 2, &[message.as_bytes()]),
        }
    }

    /// `None` where the other side has ended.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Answer>> {
        let Some((what, mut parts)) = read_message(from)? else { return Ok(None) };
        let mut message = || String::from_utf8_lossy(&parts.pop().unwrap_or_default()).into_owned();
        match what {
            0 => Ok(Some(Answer::Parts(parts))),
            1 => Ok(Some(Answer::Invalid(message()))),
            2 => Ok(Some(Answer::Failed(message()))),
            _ => Err(invalid("an answer that there is not")),
        }
    }
}

fn write_message(to: &mut impl Write, what: u8, parts: &[&[u8]]) -> io::Result<()> {
    to.write_all(&[what, parts.len() as u8])?;
    for part in parts {
        to.write_all(&(part.len() as u64).to_le_bytes())?;
        to.write_all(part)?;
    }
    to.flush()
}

/// What a message is, and its parts.
type Message = (u8, Vec<Vec<u8>>);

fn read_message(from: &mut impl Read) -> io::Result<Option<Message>> {
    let mut head = [0; 2];
    if from.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..])?;
    let mut parts = vec![];
    for _ in 0..head[1] {
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        // As much as there is, not as much as is said to come.
        let mut part = vec![];
        if from.take(length).read_to_end(&mut part)? as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        parts.push(part);
    }
    Ok(Some((head[0], parts)))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let machine =
            Machine { triple: "x86_64-unknown-linux-gnu".into(), cpu: "haswell".into(), features: "+fma".into() };
        let compile = |level, kind| Request::Compile {
            module: "k".into(),
            text: "define void @f() { ret void }".into(),
            machine: machine.clone(),
            level,
            kind,
        };
        let requests = [
            Request::Host,
            Request::Check(machine.clone()),
            compile(Level::Less, Kind::Object),
            compile(Level::Default, Kind::Assembly),
            compile(Level::Size, Kind::Object),
        ];
        let mut bytes = vec![];
        requests.iter().for_each(|request| request.write(&mut bytes).unwrap());
        let mut rest = &bytes[..];
        for request in requests {
            assert_eq!(Request::read(&mut rest).unwrap(), Some(request));
        }
        assert_eq!(Request::read(&mut rest).unwrap(), None);
        for answer in [
            Answer::Parts(vec![b"code".to_vec(), vec![]]),
            Answer::Invalid("line 3".into()),
            Answer::Failed("no such target".into()),
        ] {
            let mut bytes = vec![];
            answer.write(&mut bytes).unwrap();
            assert_eq!(Answer::read(&mut &bytes[..]).unwrap(), Some(answer));
        }
    }

    #[test]
    fn what_is_cut_or_unknown_is_an_error() {
        let mut bytes = vec![];
        Answer::Parts(vec![b"code".to_vec()]).write(&mut bytes).unwrap();
        for length in 1..bytes.len() {
            assert!(Answer::read(&mut &bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(Answer::read(&mut &[7u8, 0][..]).is_err());
        assert!(Request::read(&mut &[7u8, 0][..]).is_err());
        assert!(Request::read(&mut &[1u8, 0][..]).is_err());
        // A length that nobody has: an error, not an allocation.
        let endless = [&[0u8, 1][..], &u64::MAX.to_le_bytes(), b"x"].concat();
        assert!(Answer::read(&mut &endless[..]).is_err());
    }
}

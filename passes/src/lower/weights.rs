//! The constants of a module, at their places in the weights section.
use numrsc_ir::{DType, Tensor};
use std::collections::HashMap;

/// Every constant starts at a multiple of this.
const ALIGN: u64 = 64;

/// Constants and where they lie. Equal ones are kept once.
#[derive(Default, Debug)]
pub struct Weights {
    pieces: Vec<(u64, Tensor)>,
    places: HashMap<Tensor, u64>,
    size: u64,
}

impl Weights {
    /// The place of a constant. A string is an offset in the section, of its length and bytes; the table of offsets is what is placed.
    pub(crate) fn place(&mut self, value: &Tensor) -> u64 {
        if let Some(&at) = self.places.get(value) {
            return at;
        }
        let at = match value.strings() {
            Some(strings) => {
                let mut offsets = Vec::new();
                for s in strings {
                    let mut bytes = (s.len() as i64).to_le_bytes().to_vec();
                    bytes.extend_from_slice(s.as_bytes());
                    let n = bytes.len();
                    let piece = Tensor::new(DType::U8, vec![n], bytes.into()).expect("as many bytes as said");
                    offsets.push(self.append(piece) as i64);
                }
                self.append(Tensor::from_i64(&[offsets.len()], &offsets))
            }
            None => self.append(value.clone()),
        };
        self.places.insert(value.clone(), at);
        at
    }

    fn append(&mut self, piece: Tensor) -> u64 {
        let at = self.size.div_ceil(ALIGN) * ALIGN;
        self.size = at + piece.bytes().len().max(8) as u64;
        self.pieces.push((at, piece));
        at
    }

    /// Bytes of the section.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The constants in the order of their offsets.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pieces.iter().map(|(at, t)| (*at, &t.bytes()[..]))
    }
}

//! Finds speech in a recording as it is read: `voice-activity FILE.wav`, 16 kHz, one channel, 16 bits.
//! With `--probabilities`, tells how likely each window is speech instead.
mod detector;

use detector::{Detector, Segments, WINDOW};
use std::{env, error::Error};

const RATE: u32 = 16_000;

fn main() -> Result<(), Box<dyn Error>> {
    let (options, files): (Vec<String>, Vec<String>) = env::args().skip(1).partition(|arg| arg.starts_with('-'));
    let [path] = &files[..] else { return Err("usage: voice-activity [--probabilities] FILE.wav".into()) };
    let wants_probabilities = options.iter().any(|o| o == "--probabilities");

    let mut wav = hound::WavReader::open(path)?;
    let format = wav.spec();
    if (format.sample_rate, format.channels, format.bits_per_sample) != (RATE, 1, 16) {
        return Err(format!("{path}: not 16 kHz, one channel, 16 bits: {format:?}").into());
    }
    let mut samples = wav.samples::<i16>().peekable();
    let (mut detector, mut segments) = (Detector::new()?, Segments::default());
    while samples.peek().is_some() {
        let mut window = [0.0; WINDOW]; // the end of the last one stays silent
        for (to, sample) in window.iter_mut().zip(samples.by_ref()) {
            *to = f32::from(sample?) / 32768.0;
        }
        let probability = detector.probability(&window)?;
        if wants_probabilities {
            println!("{probability}");
        } else if let Some(speech) = segments.next(probability) {
            tell(speech);
        }
    }
    segments.last().filter(|_| !wants_probabilities).into_iter().for_each(tell);
    Ok(())
}

/// From and to, in windows.
fn tell((from, to): (usize, usize)) {
    let seconds = |windows: usize| (windows * WINDOW) as f64 / f64::from(RATE);
    println!("{:.2} s to {:.2} s", seconds(from), seconds(to));
}

//! Tells which way scanned pages are turned: `classifier PICTURE.png…`.
use image::{
    RgbImage,
    imageops::{self, FilterType},
};
use numrsc_runtime::Heap;
use std::{env, error::Error, path::PathBuf};

// The type `Orientation`, made by build.rs.
numrsc_runtime::include_model!("orientation");

/// Degrees clockwise, in the order of the model's scores.
const LABELS: [u32; 4] = [0, 90, 180, 270];

fn main() -> Result<(), Box<dyn Error>> {
    let mut model = Orientation::new()?;
    for path in env::args_os().skip(1).map(PathBuf::from) {
        let picture = image::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let (degrees, score) = classify(&mut model, &picture.to_rgb8())?;
        println!("{}: turned clockwise by {degrees} degrees ({:.0} %)", path.display(), 100.0 * score);
    }
    Ok(())
}

fn classify(model: &mut Orientation<Heap>, picture: &RgbImage) -> numrsc_runtime::Result<(u32, f32)> {
    let [scores] = *model.run(&prepare(picture))?.fetch_name_0;
    let best = (0..LABELS.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0);
    Ok((LABELS[best], scores[best]))
}

/// What the model was trained on: the shorter side scaled to 256 pixels, the 224 x 224 in the middle, and each colour less its mean over its
/// deviation in ImageNet.
fn prepare(picture: &RgbImage) -> Box<[[[[f32; 224]; 224]; 3]; 1]> {
    const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
    const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];
    let (width, height) = picture.dimensions();
    let scaled = |side: u32| (side as f32 * 256.0 / width.min(height) as f32).round() as u32;
    let small = imageops::resize(picture, scaled(width), scaled(height), FilterType::Lanczos3);
    let (left, top) = ((small.width() - 224) / 2, (small.height() - 224) / 2);

    let mut input = Box::new([[[[0.0; 224]; 224]; 3]; 1]);
    for (x, y, pixel) in imageops::crop_imm(&small, left, top, 224, 224).to_image().enumerate_pixels() {
        for colour in 0..3 {
            let value = f32::from(pixel[colour]) / 255.0;
            input[0][colour][y as usize][x as usize] = (value - MEAN[colour]) / DEVIATION[colour];
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_however_turned() {
        let mut model = Orientation::new().unwrap();
        let page = image::open("page.png").unwrap().to_rgb8();
        let turns = [page.clone(), imageops::rotate90(&page), imageops::rotate180(&page), imageops::rotate270(&page)];
        for (picture, expected) in turns.iter().zip(LABELS) {
            let (degrees, score) = classify(&mut model, picture).unwrap();
            assert_eq!(degrees, expected);
            assert!(score > 0.9, "{expected}: {score}");
        }
    }
}

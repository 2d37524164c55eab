//! Resizing, sampling at points, and operators around regions of images.
use super::{
    detection::{non_max_suppression, roi_align},
    resize::{Resize, resize},
    sampling::{affine_grid, grid_sample},
};
use crate::onnx::import::table::onnx_ops;
use numrsc_ir::{DType, Dim, Elems, Tensor, build::X};

onnx_ops! { pub(super) IMAGE in "", |g, cx|
    "Upsample" 1 (x: Any)
        { mode: String = "nearest".into(), height_scale: f64, width_scale: f64 }
        => resize(x, None, Some(floats(x, &[1.0, 1.0, height_scale, width_scale])?), None, &Resize::before_11(&mode));
    "Upsample" 7 (x: Any)
        { mode: String = "nearest".into(), scales: Vec<f64> }
        => resize(x, None, Some(floats(x, &scales)?), None, &Resize::before_11(&mode));
    "Upsample" 9 (x: Any, scales: Float)
        { mode: String = "nearest".into() }
        => resize(x, None, Some(scales), None, &Resize::before_11(&mode));
    "Resize" 10 (x: Any, scales: Float)
        { mode: String = "nearest".into() }
        => resize(x, None, Some(scales), None, &Resize::before_11(&mode));
    "Resize" 11 (x: Any; roi: Float, scales: Float, sizes: Index)
        { mode: String = "nearest".into(), coordinate_transformation_mode: String = "half_pixel".into(),
          nearest_mode: String = "round_prefer_floor".into(), cubic_coeff_a: f64 = -0.75, exclude_outside: bool = false,
          extrapolation_value: f64 = 0.0, antialias: bool = false, keep_aspect_ratio_policy: String = "stretch".into(),
          axes: Option<Vec<i64>> = None }
        => resize(x, roi, scales, sizes, &Resize {
            mode: &mode, transformation: &coordinate_transformation_mode, nearest: &nearest_mode,
            cubic_a: cubic_coeff_a, exclude_outside, extrapolation: extrapolation_value, antialias,
            policy: &keep_aspect_ratio_policy, axes: axes.as_deref() });

    "GridSample" 16 (x: Any, grid: Float)
        { mode: String = "bilinear".into(), padding_mode: String = "zeros".into(), align_corners: bool = false }
        => grid_sample(x, grid, without_bi(&mode), &padding_mode, align_corners);
    "GridSample" 20 (x: Any, grid: Float)
        { mode: String = "linear".into(), padding_mode: String = "zeros".into(), align_corners: bool = false }
        => grid_sample(x, grid, &mode, &padding_mode, align_corners);
    "AffineGrid" 20 (theta: Float, size: Index)
        { align_corners: bool = false }
        => affine_grid(theta, size, align_corners);

    "RoiAlign" 10 (x: Float, rois: Float, batch_indices: Index)
        { mode: String = "avg".into(), output_height: i64 = 1, output_width: i64 = 1, sampling_ratio: i64 = 0,
          spatial_scale: f64 = 1.0 }
        => roi_align([x, rois, batch_indices], &mode, [output_height, output_width], sampling_ratio, spatial_scale,
                     "output_half_pixel");
    "RoiAlign" 16 (x: Float, rois: Float, batch_indices: Index)
        { mode: String = "avg".into(), output_height: i64 = 1, output_width: i64 = 1, sampling_ratio: i64 = 0,
          spatial_scale: f64 = 1.0, coordinate_transformation_mode: String = "half_pixel".into() }
        => roi_align([x, rois, batch_indices], &mode, [output_height, output_width], sampling_ratio, spatial_scale,
                     &coordinate_transformation_mode);
    "NonMaxSuppression" 10 (boxes: Float, scores: Float;
                            max_output_boxes_per_class: Index, iou_threshold: Float, score_threshold: Float)
        { center_point_box: bool = false }
        where boxes[scores.dim(0)?, scores.dim(2)?, Dim::Const(4)]
        => non_max_suppression(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold,
                               center_point_box);
}

/// The names that modes had when there were only images.
fn without_bi(mode: &str) -> &str {
    match mode {
        "bilinear" => "linear",
        "bicubic" => "cubic",
        other => other,
    }
}

/// A constant vector of `f32`.
fn floats<'g>(like: X<'g>, values: &[f64]) -> numrsc_ir::Result<X<'g>> {
    like.graph().constant(Tensor::from_elems(DType::F32, vec![values.len()], &Elems::Float(values.to_vec())))
}

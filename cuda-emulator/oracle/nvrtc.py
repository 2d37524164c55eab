#!/usr/bin/env python3
"""Kernels in CUDA C, compiled by NVIDIA's NVRTC, on the emulator, against NumPy: what neither our compiler nor our emulator had a hand in.

    nvrtc.py LIBRARY    the emulator as a shared library; needs the packages nvidia-cuda-nvrtc and numpy

The emulated device is set up by NUMRSC_CUDA_EMULATOR, as for any client. Exits with 1 if a result is further off than stated.
"""
import ctypes as C
import math
import re
import sys
from pathlib import Path

import numpy as np
import nvidia

# NVRTC writes the version of PTX of its own release; the driver that is emulated reads this one.
PTX_VERSION = "8.4"


def main() -> int:
    driver, nvrtc = Driver(C.CDLL(sys.argv[1])), compiler()
    wrong = 0
    for kernel in KERNELS:
        name, source, grid, block, inputs, (shape, dtype), scalars, want, most = kernel(np.random.default_rng(1))
        got = driver.run(nvrtc(source), name, grid, block, inputs, (shape, dtype), scalars)
        error = float(np.max(np.abs(got.astype(np.float64) - want)))
        wrong += error > most
        print(f"{name:10} largest error {error:.3g}, at most {most:.3g}{'' if error <= most else ': WRONG'}")
    return 1 if wrong else 0


def compiler():
    """A function from CUDA C to PTX for the oldest device."""
    [library] = [p for folder in nvidia.__path__ for p in Path(folder).glob("*/lib/libnvrtc.so.*") if "builtins" not in p.name]
    nvrtc = C.CDLL(str(library))

    def text(program, size, get):
        n = C.c_size_t()
        size(program, C.byref(n))
        buffer = C.create_string_buffer(n.value)
        get(program, buffer)
        return buffer.value.decode()

    def compile(source):
        program = C.c_void_p()
        nvrtc.nvrtcCreateProgram(C.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        options = (C.c_char_p * 2)(b"--gpu-architecture=compute_75", b"--fmad=false")
        if nvrtc.nvrtcCompileProgram(program, 2, options):
            sys.exit(text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog))
        ptx = text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        return re.sub(r"\.version [0-9.]+", f".version {PTX_VERSION}", ptx)

    return compile


class Driver:
    """The few calls of the driver that a launch takes."""

    def __init__(self, library):
        self.cu = library
        self.call("cuInit", 0)
        context = C.c_uint64()
        self.call("cuDevicePrimaryCtxRetain", C.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *args):
        code = getattr(self.cu, name)(*args)
        if code:
            text = C.c_char_p()
            self.cu.cuGetErrorString(code, C.byref(text))
            sys.exit(f"{name}: {code}, {text.value.decode()}")

    def allocate(self, size):
        address = C.c_uint64()
        self.call("cuMemAlloc_v2", C.byref(address), C.c_size_t(size))
        return address

    def run(self, ptx, name, grid, block, inputs, output, scalars):
        module, function = C.c_uint64(), C.c_uint64()
        self.call("cuModuleLoadData", C.byref(module), C.c_char_p(ptx.encode()))
        self.call("cuModuleGetFunction", C.byref(function), module, name.encode())
        args = []
        for array in inputs:
            args.append(self.allocate(array.nbytes))
            self.call("cuMemcpyHtoD_v2", args[-1], array.ctypes.data_as(C.c_void_p), C.c_size_t(array.nbytes))
        result = np.zeros(*output)
        args.append(self.allocate(result.nbytes))
        self.call("cuMemsetD8Async", args[-1], C.c_ubyte(0), C.c_size_t(result.nbytes), C.c_uint64(0))
        args += [C.c_int(n) for n in scalars]
        pointers = (C.c_void_p * len(args))(*[C.cast(C.pointer(a), C.c_void_p) for a in args])
        self.call("cuLaunchKernel", function, *grid, *block, 0, C.c_uint64(0), pointers, None)
        self.call("cuMemcpyDtoH_v2", result.ctypes.data_as(C.c_void_p), args[len(inputs)], C.c_size_t(result.nbytes))
        return result


def softmax(rng):
    x = rng.normal(size=(37, 300)).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return "softmax", r"""
extern "C" __global__ void softmax(const float *x, float *y, int n) {
  __shared__ float part[8];
  const float *p = x + blockIdx.x * n;
  float m = -1e30f, s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, p[i]);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = m;
  __syncthreads();
  for (int i = 0; i < blockDim.x / 32; i++) m = fmaxf(m, part[i]);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += expf(p[i] - m);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
  __syncthreads();
  s = 0;
  for (int i = 0; i < blockDim.x / 32; i++) s += part[i];
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = expf(p[i] - m) / s;
}""", (37, 1, 1), (128, 1, 1), [x], (x.shape, np.float32), [300], e / e.sum(1, keepdims=True), 1e-7


def gemm(rng):
    n = 96
    a, b = (rng.normal(size=(n, n)).astype(np.float32) for _ in range(2))
    return "gemm", r"""
extern "C" __global__ void gemm(const float *a, const float *b, float *c, int n) {
  __shared__ float A[16][16], B[16][17];
  int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
  float s = 0;
  for (int k = 0; k < n; k += 16) {
    A[threadIdx.y][threadIdx.x] = a[r * n + k + threadIdx.x];
    B[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + q];
    __syncthreads();
    for (int i = 0; i < 16; i++) s = fmaf(A[threadIdx.y][i], B[i][threadIdx.x], s);
    __syncthreads();
  }
  c[r * n + q] = s;
}""", (n // 16, n // 16, 1), (16, 16, 1), [a, b], ((n, n), np.float32), [n], a.astype(np.float64) @ b, 5e-5


def histogram(rng):
    x = rng.integers(0, 256, 5000).astype(np.uint8)
    return "histogram", r"""
extern "C" __global__ void histogram(const unsigned char *x, int *h, int n) {
  __shared__ int s[256];
  s[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&s[x[i]], 1);
  __syncthreads();
  atomicAdd(&h[threadIdx.x], s[threadIdx.x]);
}""", (4, 1, 1), (256, 1, 1), [x], (256, np.int32), [5000], np.bincount(x, minlength=256), 0


def transpose(rng):
    x = rng.normal(size=(70, 130)).astype(np.float32)
    return "transpose", r"""
extern "C" __global__ void transpose(const float *x, float *y, int rows, int columns) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, to = blockIdx.y * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8) {
    int r = blockIdx.y * 32 + j;
    if (r < rows && c < columns) tile[j][threadIdx.x] = x[r * columns + c];
  }
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) {
    int from = blockIdx.x * 32 + j;
    if (to < rows && from < columns) y[from * rows + to] = tile[threadIdx.x][j];
  }
}""", (5, 3, 1), (32, 8, 1), [x], ((130, 70), np.float32), [70, 130], x.T, 0


def scan(rng):
    x = rng.integers(-1000, 1000, 512).astype(np.int32)
    return "scan", r"""
extern "C" __global__ void scan(const int *x, int *y) {
  __shared__ int warps[16];
  int v = x[threadIdx.x], lane = threadIdx.x & 31;
  for (int o = 1; o < 32; o <<= 1) { int u = __shfl_up_sync(~0u, v, o); if (lane >= o) v += u; }
  if (lane == 31) warps[threadIdx.x >> 5] = v;
  __syncthreads();
  if (threadIdx.x < 16) {
    int u = warps[threadIdx.x];
    for (int o = 1; o < 16; o <<= 1) { int z = __shfl_up_sync(0xffff, u, o, 16); if (threadIdx.x >= o) u += z; }
    warps[threadIdx.x] = u;
  }
  __syncthreads();
  y[threadIdx.x] = threadIdx.x < 32 ? v : v + warps[(threadIdx.x >> 5) - 1];
}""", (1, 1, 1), (512, 1, 1), [x], (512, np.int32), [], np.cumsum(x), 0


def argmax(rng):
    x = rng.normal(size=1000).astype(np.float32)
    return "argmax", r"""
extern "C" __global__ void argmax(const float *x, long long *y, int n) {
  __shared__ float values[32];
  __shared__ int places[32];
  float v = -3.4e38f;
  int k = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) if (x[i] > v) { v = x[i]; k = i; }
  for (int o = 16; o; o >>= 1) {
    float u = __shfl_down_sync(~0u, v, o);
    int j = __shfl_down_sync(~0u, k, o);
    if (u > v || (u == v && j < k)) { v = u; k = j; }
  }
  if (!(threadIdx.x & 31)) { values[threadIdx.x >> 5] = v; places[threadIdx.x >> 5] = k; }
  __syncthreads();
  if (threadIdx.x) return;
  for (int i = 1; i < blockDim.x / 32; i++)
    if (values[i] > v || (values[i] == v && places[i] < k)) { v = values[i]; k = places[i]; }
  *y = k;
}""", (1, 1, 1), (128, 1, 1), [x], (1, np.int64), [1000], np.array([x.argmax()]), 0


def layer_norm(rng):
    x = rng.normal(size=(9, 257)).astype(np.float32)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    return "layer_norm", r"""
extern "C" __global__ void layer_norm(const float *x, float *y, int n) {
  const float *p = x + blockIdx.x * n;
  float s = 0, q = 0;
  for (int i = threadIdx.x; i < n; i += 32) s += p[i];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  float mean = s / n;
  for (int i = threadIdx.x; i < n; i += 32) { float d = p[i] - mean; q += d * d; }
  for (int o = 16; o; o >>= 1) q += __shfl_xor_sync(~0u, q, o);
  float k = rsqrtf(q / n + 1e-5f);
  for (int i = threadIdx.x; i < n; i += 32) y[blockIdx.x * n + i] = (p[i] - mean) * k;
}""", (9, 1, 1), (32, 1, 1), [x], (x.shape, np.float32), [257], want, 1e-6


def functions(rng):
    x = rng.normal(size=2000).astype(np.float32)
    wide = x.astype(np.float64)
    gelu = 0.5 * wide * (1 + np.array([math.erf(t * math.sqrt(0.5)) for t in wide]))
    want = gelu + np.tanh(wide) + np.abs(wide) ** 1.5 + np.log(np.abs(wide) + 1) + np.fmod(x, np.float32(0.3))
    return "functions", r"""
extern "C" __global__ void functions(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  y[i] = 0.5f * v * (1 + erff(v * 0.70710678f)) + tanhf(v) + powf(fabsf(v), 1.5f) + logf(fabsf(v) + 1) + fmodf(v, 0.3f);
}""", (8, 1, 1), (256, 1, 1), [x], (2000, np.float32), [2000], want, 3e-6


KERNELS = [softmax, gemm, histogram, transpose, scan, argmax, layer_norm, functions]

if __name__ == "__main__":
    sys.exit(main())

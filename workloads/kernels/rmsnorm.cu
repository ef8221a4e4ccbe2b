// RMSNorm of each row: y = x / sqrt(mean(x²) + eps) · w, with `+ bias` where asked for.
//
// What: x, y: (rows, hidden); w, bias: (hidden,); T is __half, __nv_bfloat16 or float; row-major and
// contiguous, hidden a multiple of VEC. Sums are kept in float32 whatever T is: a float16 square
// overflows at 256.
//
// Tiling: one block owns a row at a time and strides over the rows by the size of the grid, so that a
// grid of a few blocks for each multiprocessor serves any number of rows. A row is read from global
// memory once, 16 bytes a load, summed on the way and kept in shared memory; the second pass reads it
// from there, scales and writes it. A thread reads back only what it wrote itself, so the only barrier
// of a row is that of its sum.
//
// Bound: memory. Four flops an element against four bytes moved (two-byte T). What costs time is
// latency: with two vectors a thread in flight and 1,536 threads on a multiprocessor 48 KiB are on their
// way at once, more than the latency of an H200 (some 800 ns) times its bandwidth (36 bytes a ns for
// each multiprocessor) asks for. w and bias are read by every block but stay in L2, mostly in L1; x and
// y are marked as used once, so that they do not push them out.
//
// Its twin in Triton is rmsnorm.py.

#include "vectors.cuh"

// Threads that every multiprocessor since compute capability 8 holds at once; with them a thread may use
// 40 registers.
constexpr int RESIDENT = 1536;

// Normalise the rows blockIdx.x, blockIdx.x + gridDim.x, …
//
// T: element type.  THREADS: threads of the block.  VEC: elements of 16 bytes.  HAS_BIAS: add bias.
// x: (rows, hidden), row-major.
// w: (hidden,).
// bias: (hidden,); not read, and may be null, without HAS_BIAS.
// y: (rows, hidden), row-major, written.
// eps: added to the mean of squares.
// Dynamic shared memory: hidden elements of T, then 2 · THREADS / 32 floats.
template <typename T, int THREADS, int VEC, bool HAS_BIAS>
__global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    rmsnorm(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias,
            T* __restrict__ y, int rows, int hidden, float eps) {
  using V = Vector<T, VEC>;
  extern __shared__ uint4 shared[];
  V* const kept = reinterpret_cast<V*>(shared);
  const int vectors = hidden / VEC;
  float* const partial = reinterpret_cast<float*>(kept + vectors);

  int turn = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    // 64-bit: rows * hidden exceeds 2³¹ for activations of a few GiB.
    const long long start = static_cast<long long>(row) * hidden;

    float squares = 0.0f;
#pragma unroll 2
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
      const V mine = load_once<T, VEC>(x + start + i * VEC);
      kept[i] = mine;
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float value = static_cast<float>(mine.element[j]);
        squares += value * value;
      }
    }
    const float sum = block_sum<THREADS>(squares, partial + turn * (THREADS / WARP));
    const float scale = rsqrtf(sum / hidden + eps);

#pragma unroll 1
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
      const V mine = kept[i];
      const V weight = load_often<T, VEC>(w + i * VEC);
      V shift;
      if constexpr (HAS_BIAS) {
        shift = load_often<T, VEC>(bias + i * VEC);
      }
      V out;
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        float value = static_cast<float>(mine.element[j]) * scale *
                      static_cast<float>(weight.element[j]);
        if constexpr (HAS_BIAS) {
          value += static_cast<float>(shift.element[j]);
        }
        out.element[j] = static_cast<T>(value);
      }
      store_once<T, VEC>(y + start + i * VEC, out);
    }
  }
}

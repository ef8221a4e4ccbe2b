// Sixteen bytes at a time, and sums over a block: what kernels that stream rows share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WARP = 32;

// VEC elements that are loaded and stored by one 16-byte instruction, the widest there is before
// compute capability 10. The address must be a multiple of 16.
template <typename T, int VEC>
struct alignas(16) Vector {
  static_assert(sizeof(T) * VEC == 16, "a vector is 16 bytes: VEC = 16 / sizeof(T)");
  T element[VEC];
};

// Load a vector that this kernel reads once: evicted first, so that it displaces nothing reused.
template <typename T, int VEC>
__device__ __forceinline__ Vector<T, VEC> load_once(const T* address) {
  const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(address));
  return *reinterpret_cast<const Vector<T, VEC>*>(&bits);
}

// Load a vector that every block reads again, through the read-only path; it stays in the caches.
template <typename T, int VEC>
__device__ __forceinline__ Vector<T, VEC> load_often(const T* address) {
  const uint4 bits = __ldg(reinterpret_cast<const uint4*>(address));
  return *reinterpret_cast<const Vector<T, VEC>*>(&bits);
}

// Store a vector that nobody reads soon.
template <typename T, int VEC>
__device__ __forceinline__ void store_once(T* address, const Vector<T, VEC>& vector) {
  __stcs(reinterpret_cast<uint4*>(address), *reinterpret_cast<const uint4*>(&vector));
}

// The sum of `value` over the lanes of a warp, in every lane; an exchange in butterfly order, so that
// all lanes add in the same order and get the same bits.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// The sum of `value` over a block of THREADS threads, in every thread, with one barrier.
//
// partial: THREADS / WARP floats of shared memory. The next call must be given other ones: a slow warp
//   may still read these while a fast one begins it. Two sets taken in turn are enough, because the
//   barrier of the call between is passed only when every warp has read the first.
template <int THREADS>
__device__ __forceinline__ float block_sum(float value, float* partial) {
  constexpr int WARPS = THREADS / WARP;
  static_assert(THREADS % WARP == 0 && WARPS <= WARP, "whole warps, at most 32 of them");
  value = warp_sum(value);
  if constexpr (WARPS == 1) {
    return value;
  }
  const int lane = threadIdx.x % WARP;
  if (lane == 0) {
    partial[threadIdx.x / WARP] = value;
  }
  __syncthreads();
  return warp_sum(lane < WARPS ? partial[lane] : 0.0f);
}

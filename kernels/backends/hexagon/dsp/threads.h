#pragma once

// Parts of an operation on threads of the DSP. Each part has a stack of its own, its share of VTCM
// and memory of its own; what parts write lies apart, byte for byte.

#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/platform.h"

namespace runnel::hexagon {

// Products that make a thread worth its start.
inline constexpr uint64_t kGrainProducts = 4096;

// The threads for so many vector products: at most the machine's.
inline uint32_t ThreadsFor(const Machine& machine, uint64_t products) {
  const uint64_t worth = products / kGrainProducts;
  if (worth <= 1) return 1;
  return worth < machine.threads ? static_cast<uint32_t>(worth) : machine.threads;
}

// A part's share of VTCM.
inline uint32_t VtcmShare(const Machine& machine, uint32_t threads) {
  return machine.vtcm_bytes / threads & ~uint32_t{127};
}

inline constexpr int kPanelRows = 6;  // of the products' panels, which threads do not cut

// Where a part's share of so many units begins; that of part `threads` is the end.
inline uint32_t ShareBegin(uint32_t units, uint32_t threads, uint32_t part) {
  const uint32_t rest = units % threads;
  return units / threads * part + (part < rest ? part : rest);
}

// Calls body(part) for the parts 0..threads - 1, which run beside each other.
template <typename Body>
void ForEachThread(uint32_t threads, Body& body) {
  if (threads <= 1) return body(0);
  RunOnThreads(
      threads, [](void* context, uint32_t part) { (*static_cast<Body*>(context))(part); }, &body);
}

}  // namespace runnel::hexagon

#pragma once

// ZB-H1 (Qi, Wan, Huang and Lin, "Zero Bubble Pipeline Parallelism", section 2.1): the caps of
// 1F1B, and weight-gradients that fill its bubble.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace runnel {

// Stage i defers c_0 - c_i weight-gradients: i of them with the caps N - i. Together with the cap
// each stage keeps c_0 micro-batches, as many as stage 0 of 1F1B; and stage 0 itself, whose
// input-gradients nobody waits for, defers none.
//
// Why so many: in 1F1B stage i begins i forwards late and then has no more than c_i micro-batches.
// Its gradients come back sooner if the stages behind it run forwards and input-gradients only,
// until c_0 micro-batches are on their way. From there on each input-gradient is followed by a
// weight-gradient, that of the micro-batch c_0 - c_i before. What is left fills the end, where a
// stage of 1F1B waits for gradients. With forward, input-gradient and weight-gradient times F, I
// and W, I >= W, and free links, a step of M >= N micro-batches takes M (F + I + W) + (N - 1)
// (F + I - W); 1F1B's last term has + W.
std::vector<int64_t> ZbH1Deferred(absl::Span<const int64_t> caps);

}  // namespace runnel

#pragma once

// Counter-based random numbers: every draw is a pure function of (run seed, purpose,
// layer or boundary index, sequence, logical NCHW element index). Who draws, when and on which
// thread cannot matter. The generator is Philox4x32 with 7 rounds (Salmon et al., SC'11): four
// 32-bit words a block, cheap in SIMD.

#include <array>
#include <cstdint>

namespace runnel {

enum class RandomPurpose : uint32_t {
  kInitialWeights = 1,
  kShuffle = 2,
  kDropout = 3,
  kCodecForward = 4,
  kCodecBackward = 5,
  kSyntheticData = 6,
  kAugment = 7,
  kNetworkSimulation = 8,
  kRounding = 9,
  kErrorRounding = 10,
  kValidation = 11,
  kGate = 12,
  kTest = 100,
};

// One Philox4x32 block; R is 7 for our streams, 10 to check against published vectors.
template <int R>
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < R; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// A stream of draws. Element e is word e % 4 of the block with counter
// {low(e / 4), high(e / 4), low(sequence), high(sequence)} under the stream's 64-bit key.
// A value type without state: any thread.
class CounterRandom {
 public:
  // index: the layer's or boundary's number, whichever the purpose names.
  CounterRandom(uint64_t run_seed, RandomPurpose purpose, uint64_t index, uint64_t sequence);

  std::array<uint32_t, 4> Block(uint64_t block) const {
    return Philox4x32<7>({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                          sequence_[0], sequence_[1]},
                         key_);
  }
  uint32_t Bits(uint64_t element) const { return Block(element / 4)[element % 4]; }
  // Uniform in [0, 1): the top 24 bits over 2^24, exact in FP32.
  float Uniform(uint64_t element) const {
    return static_cast<float>(Bits(element) >> 8) * 0x1p-24f;
  }
  // Standard normal (Box-Muller over elements 2e and 2e + 1 of the stream): the same bits on every
  // processor.
  double Normal(uint64_t element) const;
  // Uniform in [0, bound), bound >= 1; the bias is below bound / 2^32.
  uint32_t Below(uint64_t element, uint32_t bound) const {
    return static_cast<uint32_t>((uint64_t{Bits(element)} * bound) >> 32);
  }

  // The key, for vector code that computes blocks itself.
  std::array<uint32_t, 2> key() const { return key_; }
  std::array<uint32_t, 2> sequence_words() const { return sequence_; }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 2> sequence_;
};

}  // namespace runnel

#include "tests/transport/test_frames.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "proto/base/random.h"

namespace runnel {

Frame TestFrame(FrameKind kind, int64_t sequence, size_t payload_bytes, int generation) {
  static BufferPool* const pool = new BufferPool;
  Frame frame;
  frame.header.kind = kind;
  frame.header.generation = Generation(generation);
  frame.header.sequence = Sequence(sequence);
  frame.header.samples = static_cast<uint32_t>(sequence % 97);
  frame.payload = pool->Allocate(payload_bytes);
  const CounterRandom random(static_cast<uint64_t>(kind), RandomPurpose::kTest,
                             static_cast<uint64_t>(generation), static_cast<uint64_t>(sequence));
  const absl::Span<std::byte> bytes = frame.payload.mutable_bytes();
  // Few distinct blocks, at odd distances: cheap, and no chunk looks like another.
  std::array<std::byte, 4093> pattern;
  for (size_t i = 0; i < pattern.size(); i += 4) {
    const uint32_t word = random.Bits(i);
    std::memcpy(&pattern[i], &word, std::min<size_t>(4, pattern.size() - i));
  }
  for (size_t at = 0; at < bytes.size(); at += pattern.size()) {
    std::memcpy(&bytes[at], pattern.data(), std::min(pattern.size(), bytes.size() - at));
  }
  SealFrame(frame);
  return frame;
}

std::string WhatIsWrongWith(const Frame& frame) {
  const Frame expected = TestFrame(frame.header.kind, frame.header.sequence.value(),
                                   frame.payload.size(), frame.header.generation.value());
  if (frame.header != expected.header) return "header";
  const absl::Span<const std::byte> bytes = frame.payload.bytes();
  return bytes == expected.payload.bytes() ? "" : "payload";
}

}  // namespace runnel

#pragma once

// An arithmetic coder for which k of n elements were chosen: every element is coded as chosen with
// probability k / n, so that the length is that of the choice's entropy, n H(k / n) bits, whichever
// they are: it is known before.
//
// The coder is a range coder of 64 bits that moves 32 bits at a time. Its output is big-endian words
// of 32 bits; those that a choice does not need are 0. Integers only: the same on all machines.

#include <cstddef>
#include <cstdint>

namespace runnel {

// At most n H(k / n) / 8 bytes, 1 % and 4 bytes. 1 <= k <= n.
size_t PlaceBytes(size_t n, size_t k);

// The share of 65,536 by which an element counts as chosen.
class PlaceModel {
 public:
  PlaceModel(size_t n, size_t k);
  // The part of `range`, at least 2^32, that stands for "chosen". Never 0 nor all of it.
  uint64_t Chosen(uint64_t range) const { return (range >> 16) * share_; }
  uint64_t share() const { return share_; }

 private:
  uint64_t share_;
};

class PlaceWriter {
 public:
  // Writes PlaceBytes(n, k) bytes. Write is to be called n times, k of them with true, then Finish.
  PlaceWriter(size_t n, size_t k, std::byte* out);

  void Write(bool chosen) {
    const uint64_t part = model_.Chosen(range_);
    if (chosen) {
      const uint64_t skipped = range_ - part;
      low_ += skipped;
      if (low_ < skipped) Carry();
      range_ = part;
    } else {
      range_ -= part;
    }
    if (range_ >> 32 == 0) Shift();
  }
  void Finish();

 private:
  void Carry();
  void Shift();
  void Put(uint32_t word);

  const PlaceModel model_;
  std::byte* const begin_;
  std::byte* const end_;
  std::byte* at_;
  uint64_t low_ = 0;
  uint64_t range_ = ~uint64_t{0};
};

class PlaceReader {
 public:
  // Reads within PlaceBytes(n, k) bytes, whatever they are.
  PlaceReader(size_t n, size_t k, const std::byte* in);

  bool Read() {
    const uint64_t part = model_.Chosen(range_);
    const uint64_t skipped = range_ - part;
    const bool chosen = code_ >= skipped;
    if (chosen) {
      code_ -= skipped;
      range_ = part;
    } else {
      range_ = skipped;
    }
    if (range_ >> 32 == 0) Shift();
    return chosen;
  }
  // After the last element: whether a writer's words ended here.
  bool IsAtEnd() const;

 private:
  void Shift();
  uint32_t Take();

  const PlaceModel model_;
  const std::byte* at_;
  const std::byte* const end_;
  uint64_t code_ = 0;
  uint64_t range_ = ~uint64_t{0};
};

}  // namespace runnel

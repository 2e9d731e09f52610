#pragma once

// Memory for things that can be made again, each in a region of its own; where there is no room,
// others lose theirs. Freestanding, for the DSP; one thread.
//
// Training uses its weights in a fixed cycle, forward and backward. What was used last has the
// longest way to its next turn, so it goes first (Mandheling, section 3.6): for regions of one size
// no choice misses less. What a whole cycle did not use belongs to no program any more and goes
// before everything else.

#include <stdint.h>

#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

// Size with slack, in whole vectors.
inline uint64_t RegionBytes(uint32_t bytes) {
  constexpr uint64_t kVectorBytes = 128;
  return (uint64_t{bytes} + kSlackBytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

struct RegionKey {
  uint32_t data = 0;  // the tensor that it is made of
  uint32_t kind = 0;
  uint32_t bytes = 0;

  bool operator==(const RegionKey&) const = default;
};

class Regions {
 public:
  // Largest number of remembered regions, with memory or without.
  static constexpr int kMost = 512;

  // Memory that outlives the regions, aligned to a vector.
  void Set(uint8_t* base, uint32_t bytes);
  // From now on only its first `bytes` are used; regions beyond are gone.
  void Limit(uint32_t bytes);
  // The region of `key`, with slack behind it; `fresh`: its bytes are not those of `version`, the
  // caller writes them. Null: it is larger than the whole memory.
  uint8_t* Use(const RegionKey& key, uint64_t version, bool& fresh);
  // Uses that found no region.
  uint64_t misses() const { return misses_; }

 private:
  struct Entry {
    RegionKey key;
    uint64_t version = 0;
    uint64_t used = 0;    // the number of the use that was its last
    uint32_t offset = 0;  // in the memory
    uint32_t size = 0;    // with slack; 0: it has no region
  };

  Entry* Find(const RegionKey& key);
  Entry* Add(const RegionKey& key);
  // Makes room; regions not used since the use numbered `since` are out of the cycle.
  uint32_t Place(uint32_t size, uint64_t since);
  bool FindGap(uint32_t size, uint32_t& offset) const;
  void EvictUnused(uint64_t since);
  void EvictRun(uint32_t size);
  // The free memory around the regions first..last of places_.
  uint32_t SpanOf(int first, int last) const;
  uint32_t EndBefore(int place) const;
  void TakePlace(Entry* entry);
  void Evict(int place);

  uint8_t* base_ = nullptr;
  uint32_t bytes_ = 0;  // bytes that may be used
  uint32_t all_bytes_ = 0;
  Entry entries_[kMost];
  int entry_count_ = 0;
  Entry* places_[kMost] = {};  // those with a region, by offset
  int place_count_ = 0;
  uint64_t uses_ = 0;
  uint64_t misses_ = 0;
};

// Regions at places that somebody else has chosen, each for itself (eviction_plan.h). What lies
// over another one takes its bytes.
class KeptRegions {
 public:
  static constexpr int kMost = 128;

  // Forgets the contents if the memory is another one.
  void Set(uint8_t* base, uint32_t bytes);
  // A region as of Regions::Use, `offset` into the memory. Null: it reaches past the end.
  uint8_t* Use(uint32_t offset, const RegionKey& key, uint64_t version, bool& fresh);

 private:
  struct Entry {
    RegionKey key;
    uint64_t version = 0;
    uint32_t offset = 0;
    uint32_t size = 0;
  };

  uint8_t* base_ = nullptr;
  uint32_t bytes_ = 0;
  Entry entries_[kMost];
  int entry_count_ = 0;
};

}  // namespace runnel::hexagon

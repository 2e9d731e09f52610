#include "kernels/backends/hexagon/dsp/regions.h"

namespace runnel::hexagon {

void Regions::Set(uint8_t* base, uint32_t bytes) {
  base_ = base;
  bytes_ = all_bytes_ = bytes;
  entry_count_ = 0;
  place_count_ = 0;
}

void Regions::Limit(uint32_t bytes) {
  bytes_ = bytes < all_bytes_ ? bytes : all_bytes_;
  while (place_count_ > 0 && EndBefore(place_count_) > bytes_) Evict(place_count_ - 1);
}

uint8_t* Regions::Use(const RegionKey& key, uint64_t version, bool& fresh) {
  const uint64_t size = RegionBytes(key.bytes);
  fresh = true;
  if (size > bytes_) return nullptr;
  ++uses_;
  Entry* entry = Find(key);
  if (entry != nullptr && entry->size > 0) {
    fresh = entry->version != version;
  } else {
    ++misses_;
    const uint64_t since = entry != nullptr ? entry->used : 0;
    if (entry == nullptr) entry = Add(key);
    entry->offset = Place(static_cast<uint32_t>(size), since);
    entry->size = static_cast<uint32_t>(size);
    TakePlace(entry);
  }
  entry->version = version;
  entry->used = uses_;
  return base_ + entry->offset;
}

Regions::Entry* Regions::Find(const RegionKey& key) {
  for (int i = 0; i < entry_count_; ++i) {
    if (entries_[i].key == key) return &entries_[i];
  }
  return nullptr;
}

// If all entries are taken, reuses the one that was used longest ago.
Regions::Entry* Regions::Add(const RegionKey& key) {
  Entry* entry = &entries_[0];
  if (entry_count_ < kMost) {
    entry = &entries_[entry_count_++];
  } else {
    for (Entry& other : entries_) {
      if (other.used < entry->used) entry = &other;
    }
    for (int i = 0; i < place_count_; ++i) {
      if (places_[i] == entry) Evict(i);
    }
  }
  *entry = {};
  entry->key = key;
  return entry;
}

uint32_t Regions::Place(uint32_t size, uint64_t since) {
  uint32_t offset = 0;
  if (FindGap(size, offset)) return offset;
  EvictUnused(since);
  if (FindGap(size, offset)) return offset;
  EvictRun(size);
  FindGap(size, offset);
  return offset;
}

uint32_t Regions::EndBefore(int place) const {
  return place == 0 ? 0 : places_[place - 1]->offset + places_[place - 1]->size;
}

uint32_t Regions::SpanOf(int first, int last) const {
  const uint32_t end = last + 1 < place_count_ ? places_[last + 1]->offset : bytes_;
  return end - EndBefore(first);
}

// The smallest that is large enough.
bool Regions::FindGap(uint32_t size, uint32_t& offset) const {
  bool found = false;
  uint32_t smallest = 0;
  for (int i = 0; i <= place_count_; ++i) {
    const uint32_t begin = EndBefore(i);
    const uint32_t end = i < place_count_ ? places_[i]->offset : bytes_;
    if (end - begin < size || (found && end - begin >= smallest)) continue;
    found = true;
    smallest = end - begin;
    offset = begin;
  }
  return found;
}

void Regions::EvictUnused(uint64_t since) {
  for (int i = place_count_ - 1; i >= 0; --i) {
    if (places_[i]->used < since) Evict(i);
  }
}

// Evicts the neighbours with the fewest bytes that make room together; among equals those used
// last.
void Regions::EvictRun(uint32_t size) {
  int best_first = 0, best_last = place_count_ - 1;
  uint64_t best_bytes = ~uint64_t{0}, best_used = 0;
  for (int first = 0; first < place_count_; ++first) {
    uint64_t bytes = 0, used = 0;
    for (int last = first; last < place_count_; ++last) {
      bytes += places_[last]->size;
      if (places_[last]->used > used) used = places_[last]->used;
      if (SpanOf(first, last) < size) continue;
      if (bytes < best_bytes || (bytes == best_bytes && used > best_used)) {
        best_first = first;
        best_last = last;
        best_bytes = bytes;
        best_used = used;
      }
      break;
    }
  }
  for (int i = best_last; i >= best_first; --i) Evict(i);
}

void Regions::TakePlace(Entry* entry) {
  int place = place_count_++;
  for (; place > 0 && places_[place - 1]->offset > entry->offset; --place)
    places_[place] = places_[place - 1];
  places_[place] = entry;
}

void Regions::Evict(int place) {
  places_[place]->size = 0;
  --place_count_;
  for (int i = place; i < place_count_; ++i) places_[i] = places_[i + 1];
}

void KeptRegions::Set(uint8_t* base, uint32_t bytes) {
  if (base == base_ && bytes == bytes_) return;
  base_ = base;
  bytes_ = bytes;
  entry_count_ = 0;
}

uint8_t* KeptRegions::Use(uint32_t offset, const RegionKey& key, uint64_t version, bool& fresh) {
  const uint64_t size = RegionBytes(key.bytes);
  fresh = true;
  if (offset + size > bytes_) return nullptr;
  for (int i = 0; i < entry_count_;) {
    Entry& entry = entries_[i];
    if (entry.offset == offset && entry.key == key) {
      fresh = entry.version != version;
      entry.version = version;
      return base_ + offset;
    }
    const bool overlaps = entry.offset < offset + size && offset < entry.offset + entry.size;
    if (overlaps) {
      entry = entries_[--entry_count_];
    } else {
      ++i;
    }
  }
  if (entry_count_ == kMost) entry_count_ = 0;
  entries_[entry_count_++] = {key, version, offset, static_cast<uint32_t>(size)};
  return base_ + offset;
}

}  // namespace runnel::hexagon

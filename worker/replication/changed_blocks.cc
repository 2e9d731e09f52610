#include "worker/replication/changed_blocks.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr size_t kNumberBytes = 4;

size_t BlocksOf(size_t bytes) { return (bytes + kChangedBlockBytes - 1) / kChangedBlockBytes; }

}  // namespace

std::string ChangedBlocks(absl::string_view base, absl::string_view bytes) {
  std::string changes;
  for (size_t block = 0; block < BlocksOf(bytes.size()); ++block) {
    const size_t at = block * kChangedBlockBytes;
    const absl::string_view is = bytes.substr(at, kChangedBlockBytes);
    if (at < base.size() && base.substr(at, is.size()) == is) continue;
    for (size_t i = 0; i < kNumberBytes; ++i)
      changes.push_back(static_cast<char>(block >> (8 * i) & 0xff));
    changes.append(is.data(), is.size());
  }
  return changes;
}

absl::StatusOr<std::string> WithChangedBlocks(absl::string_view base, size_t size,
                                              absl::string_view changes) {
  std::string bytes(base.substr(0, size));
  bytes.resize(size);
  // Whole blocks that both have may stay as they are; what the base has not must come.
  const size_t kept = std::min(base.size(), size);
  const size_t first_new = kept == size ? BlocksOf(size) : kept / kChangedBlockBytes;
  size_t next = 0, fresh = 0;
  while (!changes.empty()) {
    if (changes.size() < kNumberBytes) return absl::InvalidArgumentError("changes end in a number");
    size_t block = 0;
    for (size_t i = kNumberBytes; i-- > 0;)
      block = block << 8 | static_cast<unsigned char>(changes[i]);
    changes.remove_prefix(kNumberBytes);
    if (block < next || block >= BlocksOf(size))
      return absl::InvalidArgumentError(absl::StrCat("changes of block ", block));
    const size_t at = block * kChangedBlockBytes;
    const size_t length = std::min(kChangedBlockBytes, size - at);
    if (changes.size() < length) return absl::InvalidArgumentError("changes end in a block");
    std::copy_n(changes.data(), length, bytes.data() + at);
    changes.remove_prefix(length);
    next = block + 1;
    if (block >= first_new) ++fresh;
  }
  if (fresh != BlocksOf(size) - first_new)
    return absl::InvalidArgumentError("changes lack bytes that were not there before");
  return bytes;
}

}  // namespace runnel

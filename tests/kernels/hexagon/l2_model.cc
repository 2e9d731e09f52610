// A plug-in of qemu-hexagon: passes all that the DSP's program reads and writes through a model of
// its L2 cache, and counts what has to come from memory and go back there. Lines of 64 bytes, least
// recently used first, no fetching ahead. A line of which all bytes that are read were written before
// is not loaded. Tightly coupled memory is no part of the cache. Instructions are not counted.
//
// Arguments: counts=FILE, which has an L2Counts; vtcm_bytes=N.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/backends/hexagon/emulator_places.h"
#include "tests/kernels/hexagon/l2_counts.h"

// The emulator's interface for plug-ins, version 1, as far as it is used.
extern "C" {
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
                                           void (*translated)(uint64_t id, qemu_plugin_tb*));
size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb* block);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb* block, size_t number);
void qemu_plugin_register_vcpu_mem_cb(qemu_plugin_insn* instruction,
                                      void (*accessed)(unsigned cpu, uint32_t access,
                                                       uint64_t address, void* data),
                                      int registers, int kind, void* data);
unsigned qemu_plugin_mem_size_shift(uint32_t access);
bool qemu_plugin_mem_is_store(uint32_t access);
}

namespace runnel::hexagon {
namespace {

class L2Model {
 public:
  void Begin(L2Counts* counts, uint32_t vtcm_bytes) {
    counts_ = counts;
    vtcm_bytes_ = vtcm_bytes;
    ways_.resize(kSets * kL2Ways);
  }

  void Access(uint64_t address, uint32_t bytes, bool stores) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const uint64_t resets = counts_->resets; resets != resets_) Reset(resets);
    if (address - kEmulatedVtcm < vtcm_bytes_) {
      counts_->vtcm_bytes += bytes;
      return;
    }
    while (bytes > 0) {
      const auto offset = static_cast<uint32_t>(address % kL2LineBytes);
      const uint32_t part = std::min(bytes, kL2LineBytes - offset);
      const uint64_t mask = (part == 64 ? ~uint64_t{0} : (uint64_t{1} << part) - 1) << offset;
      AccessLine(address / kL2LineBytes, mask, stores);
      address += part;
      bytes -= part;
    }
  }

 private:
  static constexpr size_t kSets = kL2Bytes / kL2LineBytes / kL2Ways;
  struct Way {
    uint64_t line = ~uint64_t{0};
    uint64_t valid = 0;  // a bit for each byte
    uint64_t used = 0;   // the access that was its last
    bool dirty = false;
  };

  void Reset(uint64_t resets) {
    resets_ = resets;
    for (Way& way : ways_) way = {};
    for (auto* count : {&counts_->loaded_lines, &counts_->written_lines, &counts_->dirty_lines,
                        &counts_->vtcm_bytes})
      *count = 0;
  }

  // Where the line is, or gets its place.
  Way& WayOf(uint64_t line) {
    Way* const set = &ways_[line % kSets * kL2Ways];
    Way* oldest = set;
    for (uint32_t i = 0; i < kL2Ways; ++i) {
      if (set[i].line == line) return set[i];
      if (set[i].used < oldest->used) oldest = &set[i];
    }
    if (oldest->dirty) {
      ++counts_->written_lines;
      --counts_->dirty_lines;
    }
    *oldest = {.line = line};
    return *oldest;
  }

  void AccessLine(uint64_t line, uint64_t mask, bool stores) {
    Way& way = WayOf(line);
    way.used = ++accesses_;
    if (stores) {
      way.valid |= mask;
      if (!way.dirty) ++counts_->dirty_lines;
      way.dirty = true;
    } else if ((mask & ~way.valid) != 0) {
      ++counts_->loaded_lines;
      way.valid = ~uint64_t{0};
    }
  }

  std::mutex mutex_;  // each thread of the program has its own processor
  L2Counts* counts_ = nullptr;
  uint32_t vtcm_bytes_ = 0;
  uint64_t resets_ = 0;
  uint64_t accesses_ = 0;
  std::vector<Way> ways_;
};

L2Model model;

void OnAccess(unsigned, uint32_t access, uint64_t address, void*) {
  model.Access(address, 1u << qemu_plugin_mem_size_shift(access), qemu_plugin_mem_is_store(access));
}

void OnTranslated(uint64_t, qemu_plugin_tb* block) {
  constexpr int kNoRegisters = 0, kReadsAndWrites = 3;
  for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); ++i) {
    qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), OnAccess, kNoRegisters,
                                     kReadsAndWrites, nullptr);
  }
}

// The value of an argument "name=value"; null: it is another one.
const char* ValueOf(const char* argument, const char* name) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0 || argument[length] != '=') return nullptr;
  return argument + length + 1;
}

}  // namespace
}  // namespace runnel::hexagon

extern "C" {

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void*, int count,
                                                               char** arguments) {
  using namespace runnel::hexagon;
  const char* file = nullptr;
  uint32_t vtcm_bytes = 0;
  for (int i = 0; i < count; ++i) {
    if (const char* counts = ValueOf(arguments[i], "counts")) file = counts;
    if (const char* bytes = ValueOf(arguments[i], "vtcm_bytes"))
      vtcm_bytes = static_cast<uint32_t>(std::atoi(bytes));
  }
  const int opened = file == nullptr ? -1 : open(file, O_RDWR | O_CLOEXEC);
  if (opened < 0) return 1;
  void* counts = mmap(nullptr, sizeof(L2Counts), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  close(opened);
  if (counts == MAP_FAILED) return 1;
  model.Begin(static_cast<L2Counts*>(counts), vtcm_bytes);
  qemu_plugin_register_vcpu_tb_trans_cb(id, OnTranslated);
  return 0;
}

}  // extern "C"

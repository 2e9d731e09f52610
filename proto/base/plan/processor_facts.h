#pragma once

// The processors that a worker's backends compute on, for people and for plans. Not part of any
// identity, and never journalled. Pure data; any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace runnel {

// Largest number of facts that a worker reports.
inline constexpr size_t kMaxProcessorFacts = 8;

enum class ProcessorState : uint8_t {
  kNotOpened,  // installed; no driver was loaded to look at it
  kReady,      // it computes; there is nothing to check
  kChecked,    // it computes integers as `ref` does
  kRefused,    // it is not used; `note` says why
};
inline constexpr int kProcessorStateCount = 4;

// Facts of one backend. Unknown members are empty or 0.
struct ProcessorFacts {
  std::string backend;  // BackendRow::name
  ProcessorState state = ProcessorState::kNotOpened;
  std::string device;
  std::string driver;
  int64_t compute_units = 0;
  // The part of its own memory that stages may take; 0: it computes in the host's memory.
  int64_t memory_bytes = 0;
  std::string dot_product;   // how products of int8 are added up: "avx512vnni", "nvidia"
  bool is_emulated = false;  // its times say nothing about the processor that it stands for
  std::string note = {};

  friend bool operator==(const ProcessorFacts&, const ProcessorFacts&) = default;
};

// "yes", "no", or "not opened".
std::string UsableText(ProcessorState state);
// One line: device, driver, units, memory, dot product, then state and note.
std::string ToText(const ProcessorFacts& facts);
// The facts with texts short enough that a list of them fits a worker's first message.
ProcessorFacts Shortened(ProcessorFacts facts);

// The facts of this backend; null: there are none.
const ProcessorFacts* FindProcessor(const std::vector<ProcessorFacts>& list,
                                    const std::string& backend);

}  // namespace runnel

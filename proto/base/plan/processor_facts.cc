#include "proto/base/plan/processor_facts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel {
namespace {

constexpr size_t kNameBytes = 32;
constexpr size_t kDriverBytes = 64;
constexpr size_t kDeviceBytes = 96;
constexpr size_t kNoteBytes = 160;

// Whole characters of UTF-8.
void Cut(std::string& text, size_t bytes) {
  if (text.size() <= bytes) return;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  text.resize(bytes);
}

std::string MemoryText(int64_t bytes) {
  if (bytes < (1 << 20)) return absl::StrCat(bytes, " bytes");
  return absl::StrCat(bytes >> 20, " MiB");
}

}  // namespace

std::string UsableText(ProcessorState state) {
  switch (state) {
    case ProcessorState::kNotOpened:
      return "not opened";
    case ProcessorState::kRefused:
      return "no";
    case ProcessorState::kReady:
    case ProcessorState::kChecked:
      break;
  }
  return "yes";
}

std::string ToText(const ProcessorFacts& facts) {
  std::vector<std::string> parts;
  if (!facts.device.empty()) parts.push_back(facts.device);
  if (!facts.driver.empty()) parts.push_back(absl::StrCat("driver ", facts.driver));
  if (facts.compute_units > 0) {
    parts.push_back(absl::StrCat(facts.compute_units,
                                 facts.compute_units == 1 ? " compute unit" : " compute units"));
  }
  if (facts.memory_bytes > 0)
    parts.push_back(absl::StrCat(MemoryText(facts.memory_bytes), " for stages"));
  if (!facts.dot_product.empty()) parts.push_back(absl::StrCat("dot product ", facts.dot_product));
  std::vector<std::string> sentences;
  if (!parts.empty()) sentences.push_back(absl::StrJoin(parts, ", "));
  if (facts.is_emulated) sentences.push_back("emulated: its times are no processor's");
  if (facts.state == ProcessorState::kChecked) sentences.push_back("integers as ref computes them");
  if (facts.state == ProcessorState::kNotOpened)
    sentences.push_back("installed, its driver was not loaded");
  if (!facts.note.empty()) sentences.push_back(facts.note);
  return absl::StrJoin(sentences, "; ");
}

ProcessorFacts Shortened(ProcessorFacts facts) {
  Cut(facts.backend, kNameBytes);
  Cut(facts.device, kDeviceBytes);
  Cut(facts.driver, kDriverBytes);
  Cut(facts.dot_product, kNameBytes);
  Cut(facts.note, kNoteBytes);
  return facts;
}

const ProcessorFacts* FindProcessor(const std::vector<ProcessorFacts>& list,
                                    const std::string& backend) {
  for (const ProcessorFacts& facts : list) {
    if (facts.backend == backend) return &facts;
  }
  return nullptr;
}

}  // namespace runnel

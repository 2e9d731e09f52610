#include "central/display/chrome_trace.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

constexpr size_t kMostSpans = 100'000;    // of all devices
constexpr int kComputes = 1, kCodes = 2;  // threads

// By micro-batch, the begin and the end of its forward, or its gradient, at one stage.
using Passes = std::map<int64_t, std::pair<int64_t, int64_t>>;

class Writer {
 public:
  explicit Writer(const RunTrace& trace) : trace_(trace) {}

  std::string Write() {
    const size_t most = kMostSpans / std::max<size_t>(1, trace_.devices.size());
    for (size_t i = 0; i < trace_.devices.size(); ++i) AddDevice(static_cast<int>(i) + 1, most);
    AddArrows(forwards_, "activation", 1);
    AddArrows(backwards_, "gradient", -1);
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"step\":", trace_.step,
                        "},\"traceEvents\":[", events_, "]}\n");
  }

 private:
  double Micros(int64_t at_ns) const { return static_cast<double>(at_ns - trace_.begin_ns) * 1e-3; }

  void Add(const std::string& event) {
    absl::StrAppend(&events_, events_.empty() ? "\n" : ",\n", event);
  }

  void Name(int process, int thread, const char* what, const std::string& name) {
    Add(absl::StrFormat(R"({"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{"name":%s}})", process,
                        thread, what, DumpJson(Json(name))));
  }

  void AddDevice(int process, size_t most) {
    const DeviceTrace& device = trace_.devices[static_cast<size_t>(process) - 1];
    const size_t shown = std::min(most, device.spans.size());
    const int64_t left_out = device.left_out + static_cast<int64_t>(device.spans.size() - shown);
    std::string name = device.device;
    if (device.stage.has_value()) {
      absl::StrAppend(&name, ", stage ", *device.stage, ": layers ", device.first_layer, " to ",
                      device.last_layer);
    }
    if (!device.answered) absl::StrAppend(&name, "; it did not answer");
    if (left_out > 0) absl::StrAppend(&name, "; ", left_out, " spans left out");
    Name(process, 0, "process_name", name);
    Name(process, kComputes, "thread_name", "computes");
    Name(process, kCodes, "thread_name", "codes");
    for (size_t i = 0; i < shown; ++i) AddSpan(process, device, device.spans[i]);
  }

  void AddSpan(int process, const DeviceTrace& device, const Span& span) {
    const absl::string_view kind = NameOf(span.kind);
    Add(absl::StrFormat(
        R"({"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"cat":"%s","name":"%s %d"})", process,
        IsCoding(span.kind) ? kCodes : kComputes, Micros(span.begin_ns),
        static_cast<double>(span.took_ns) * 1e-3, kind, kind, span.micro_batch));
    if (!device.stage.has_value()) return;
    const std::pair<int64_t, int64_t> pass{span.begin_ns, span.begin_ns + span.took_ns};
    if (span.kind == SpanKind::kForward) forwards_[*device.stage][span.micro_batch] = pass;
    if (span.kind == SpanKind::kInputGradient) backwards_[*device.stage][span.micro_batch] = pass;
    processes_[*device.stage] = process;
  }

  // From each stage to the one that is `way` further.
  void AddArrows(const std::map<int, Passes>& stages, const char* what, int way) {
    for (const auto& [stage, passes] : stages) {
      const auto next = stages.find(stage + way);
      if (next == stages.end()) continue;
      for (const auto& [micro_batch, pass] : passes) {
        const auto there = next->second.find(micro_batch);
        if (there == next->second.end()) continue;
        AddArrowEnd("s", what, stage, stage, micro_batch, pass.second);
        AddArrowEnd("f", what, stage, stage + way, micro_batch, there->second.first);
      }
    }
  }

  void AddArrowEnd(const char* end, const char* what, int from, int stage, int64_t micro_batch,
                   int64_t at_ns) {
    Add(absl::StrFormat(
        R"({"ph":"%s","pid":%d,"tid":%d,"ts":%.3f,"cat":"%s","name":"%s","id":"%s %d/%d","bp":"e"})",
        end, processes_.at(stage), kComputes, Micros(at_ns), what, what, what, micro_batch, from));
  }

  const RunTrace& trace_;
  std::string events_;
  std::map<int, Passes> forwards_, backwards_;  // by stage
  std::map<int, int> processes_;                // by stage
};

}  // namespace

std::string ChromeTrace(const RunTrace& trace) { return Writer(trace).Write(); }

}  // namespace runnel

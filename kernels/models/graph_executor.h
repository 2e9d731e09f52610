#pragma once

// Runs an INT8 graph, or a slice of one, on a backend. What each value is stands in int8_graph.h:
// all rows of the table give the bytes of `ref`, logits included.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/models/graph/int8_graph.h"

namespace runnel::inference {

// Of one sample. In: FP32 samples (NCHW, normalised), or int8 codes of node 0 (NHWC) where the
// graph takes_codes. Out: FP32 logits, or int8 codes of the last node (NHWC) where it gives_codes.
int64_t InputBytes(const Int8Graph& graph);
int64_t OutputBytes(const Int8Graph& graph);
// InvalidArgument: not those of a batch, in bytes.
absl::Status CheckSpans(const Int8Graph& graph, size_t input, int64_t batch, size_t output);

// Made for one graph: weights are packed, kernels built. Not thread-safe; any one thread at a time.
class GraphExecutor {
 public:
  virtual ~GraphExecutor() = default;
  // What computes, for people: an instruction set, or a device.
  virtual std::string description() const = 0;
  // What computes a node, for people: "direct avx512_vnni". Of a node of the graph.
  virtual std::string kernel(size_t node) const = 0;

  // One batch of any size. input: batch * InputBytes, float or int8 as above and aligned for it;
  // output: batch * OutputBytes, likewise; they do not overlap. It returns when output is written.
  // A pass like the one before asks for no memory on the host. InvalidArgument: spans of other
  // sizes or batch < 1. An error that LostBackendOf knows (lost_backend.h): the device is lost or
  // has no room; another executor gives the same bytes. After an error output is undefined.
  virtual absl::Status Run(absl::Span<const std::byte> input, int64_t batch,
                           absl::Span<std::byte> output) = 0;

  // Wall-clock seconds by node: medians over `passes` of a batch, after one that does not count.
  // Unimplemented, one line: this backend cannot time nodes. Else as Run.
  virtual absl::StatusOr<std::vector<double>> TimeNodes(absl::Span<const std::byte> input,
                                                        int64_t batch, int passes);
};

struct ExecutorRow {
  absl::string_view name;
  absl::string_view summary;  // for --help
  // graph: borrowed, checked (CheckAndInfer). threads >= 1, of the host. Errors: as MakeBackend's;
  // Unimplemented names a node that the backend cannot compute; LostBackendOf: no room on the
  // device.
  absl::StatusOr<std::unique_ptr<GraphExecutor>> (*make)(const Int8Graph& graph, int threads);
  // It computes on a backend of this name beside the processor (program_executor.h), whose
  // arithmetic is to be checked before it is believed, and which may be lost.
  bool is_device = false;
};

// The table, best first; `ref`, the plain loops, last.
absl::Span<const ExecutorRow> GraphExecutors();
// By name; "auto" is the first row. InvalidArgument lists what there is.
absl::StatusOr<const ExecutorRow*> FindGraphExecutor(absl::string_view name);
absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeGraphExecutor(absl::string_view name,
                                                                 const Int8Graph& graph,
                                                                 int threads);

}  // namespace runnel::inference

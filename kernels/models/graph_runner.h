#pragma once

// Runs an INT8 graph, or a slice of one, on a backend, as programs (graph_program.h). What each
// value is stands in int8_graph.h: all backends give the bytes of `ref`, logits included.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backends/backend.h"
#include "kernels/models/graph/int8_graph.h"
#include "kernels/models/graph_piece.h"

namespace runnel::inference {

// Of one sample. In: FP32 samples (NCHW, normalised), or int8 codes of node 0 (NHWC) where the
// graph takes_codes. Out: FP32 logits, or int8 codes of the last node (NHWC) where it gives_codes.
int64_t InputBytes(const Int8Graph& graph);
int64_t OutputBytes(const Int8Graph& graph);

// Made for one graph: weights are packed, kernels built. Not thread-safe; any one thread at a time.
class GraphRunner {
 public:
  // graph: borrowed, checked (CheckAndInfer). Layers that stay in FP32 are computed by backend cpu
  // where this one has none. Unimplemented names a node that the backend cannot compute. An error
  // that LostBackendOf knows (lost_backend.h): the device has no room, or is lost.
  static absl::StatusOr<std::unique_ptr<GraphRunner>> Make(const Int8Graph& graph,
                                                           std::unique_ptr<Backend> backend);
  // On a backend of the caller's.
  static absl::StatusOr<std::unique_ptr<GraphRunner>> Make(const Int8Graph& graph,
                                                           Backend& backend);

  const Backend& backend() const { return backend_; }
  // What the backend takes of its device beside weights and values, of programs that were run.
  int64_t memory_bytes() const;
  // What computes a node, for people: "direct avx512_vnni". Of a backend that chooses Winograd by
  // the room it has: what it chose in TimeNodes or RunNodes, before which it is "direct".
  std::string kernel(size_t node) const;

  // One batch of any size. input: batch * InputBytes, float or int8 as above and aligned for it;
  // output: batch * OutputBytes, likewise; they do not overlap. It returns when output is written.
  // A pass like the one before asks for no memory on the host. InvalidArgument: spans of other
  // sizes or batch < 1. An error that LostBackendOf knows: another backend gives the same bytes.
  // After an error output is undefined.
  absl::Status Run(absl::Span<const std::byte> input, int64_t batch, absl::Span<std::byte> output);

  // Wall-clock seconds by node, each in a program of its own: medians over `passes` of a batch,
  // after one that does not count. Unimplemented, one line: this backend cannot time nodes.
  absl::StatusOr<std::vector<double>> TimeNodes(int64_t batch, int passes);

  // Computes node by node and gives each value as it is made: codes or logits (graph_piece.h).
  absl::Status RunNodes(absl::Span<const std::byte> input, int64_t batch,
                        absl::FunctionRef<void(size_t node, const std::byte* value)> use);

 private:
  GraphRunner(const Int8Graph& graph, Backend& backend, std::unique_ptr<Backend> owned);
  absl::StatusOr<Backend*> BackendOf(size_t node);
  absl::Status MakePieces();
  absl::StatusOr<GraphPiece> PieceOf(size_t node);

  const Int8Graph& graph_;
  const std::unique_ptr<Backend> owned_;
  Backend& backend_;
  const bool codes_in_products_;   // BackendTraits
  std::unique_ptr<Backend> host_;  // of FP32 nodes, where `backend_` has none
  const size_t last_;
  std::vector<GraphPiece> pieces_;  // the last one gives the last node
  std::vector<Room> values_;        // by node
  // Node by node: the graph as one that takes codes, and a piece for each node.
  Int8Graph codes_;
  std::vector<GraphPiece> nodes_;
};

// The codes of a value as real numbers; `count` of them.
void Decode(const Coding& coding, const int8_t* codes, int64_t count, float* real);

}  // namespace runnel::inference

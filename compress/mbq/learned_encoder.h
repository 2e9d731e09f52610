#pragma once

// The common part of encoders that learn from the loss: gradients wait so long that their time of
// arrival cannot matter (Encoder::Learn).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compress/codec.h"

namespace runnel {

class LearnedEncoder : public Encoder {
 public:
  // mark: tells states of different codecs apart.
  LearnedEncoder(char mark, int k, const EncoderKey& key) : mark_(mark), k_(k), key_(key) {}

  absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload) final;
  bool learns() const final { return true; }
  absl::Status Learn(const TensorView& gradient, Sequence sequence) final;
  std::string SaveState() const final;
  absl::Status RestoreState(absl::string_view state) final;

 protected:
  // Parameters as they are kept and saved, and any number of values that the optimizer keeps.
  struct Parameters {
    std::vector<float> values;
    std::vector<double> moments;
  };

  int k() const { return k_; }

  virtual Bytes PayloadBytes(const Shape& shape) const = 0;
  // Before anything was encoded; sizes never change.
  virtual Parameters Initial() const = 0;
  // Sets the parameters by the first micro-batch, whose values are finite.
  virtual void Start(const float* x, size_t n, Parameters& parameters) const = 0;
  virtual void Write(const float* x, size_t n, const Parameters& parameters,
                     std::byte* payload) const = 0;
  // Derivatives of the loss with respect to the parameters that `x` was sent with: what Write wrote
  // is `payload`. As many as parameters.
  virtual std::vector<double> Derivatives(const float* gradient, const float* x, size_t n,
                                          const std::byte* payload) const = 0;
  // Whether Step can have produced these parameters: a decoder must accept payloads made with them.
  virtual bool Possible(const Parameters& parameters) const = 0;
  // Moves the parameters one step down the derivatives.
  virtual void Step(const std::vector<double>& derivatives, Parameters& parameters) const = 0;

 private:
  // A micro-batch whose gradient has not come yet.
  struct Sent {
    std::vector<float> x;
    std::vector<std::byte> payload;
  };
  // Gradients that the micro-batch may know: of those that had left the pipeline.
  void Catchup(int64_t sequence);

  const char mark_;
  const int k_;
  const EncoderKey key_;
  int64_t steps_ = 0;  // micro-batches encoded; 0: parameters are the initial ones
  Parameters parameters_;
  std::map<int64_t, Sent> sent_;
  std::map<int64_t, std::vector<double>> waiting_;  // derivatives by sequence
};

}  // namespace runnel

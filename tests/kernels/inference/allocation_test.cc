// A pass of the INT8 executor asks for no memory once one of that size has been there.

#include "gtest/gtest.h"
#include "kernels/models/int8_executor.h"
#include "kernels/models/quantize/quantizer.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/base/counted_allocations.h"
#include "tests/kernels/random_model.h"

namespace runnel::inference {
namespace {

TEST(Allocation, APassOfTheExecutorMakesNone) {
  for (const char* name : {"lenet", "mobilenet_v2", "resnet18"}) {
    SCOPED_TRACE(name);
    const ModelSpec model = MakeModel(name).value();
    const FoldedGraph folded = FoldModel(model, InitialState(model, 1).value(), true).value();
    const std::vector<float> samples = RandomValues(1, 0, 2 * model.input.elements());
    for (auto [scheme, winograd] : {std::pair(Scheme::kSymmetric, WinogradUse::kInt4Int6),
                                    std::pair(Scheme::kAsymmetric, WinogradUse::kOff)}) {
      QuantizeOptions options{ParseCalibration("absmax").value(), scheme};
      options.winograd = winograd;
      Quantizer quantizer(folded, options);
      quantizer.Observe(0, absl::MakeConstSpan(samples).first(model.input.elements()), 1);
      const Int8Graph graph = quantizer.Finish().value();
      Int8Executor executor(graph, 1, cpu::BestInt8Kernels());
      std::vector<float> logits(2 * graph.classes());
      // The largest batch first; memory for all of a pass is one piece from the second pass on.
      for (int pass = 0; pass < 2; ++pass) executor.Run(samples, 2, absl::MakeSpan(logits));
      const int64_t before = CountedAllocations();
      executor.Run(samples, 2, absl::MakeSpan(logits));
      executor.Run(absl::MakeConstSpan(samples).first(model.input.elements()), 1,
                   absl::MakeSpan(logits));
      EXPECT_EQ(CountedAllocations(), before);
    }
  }
}

}  // namespace
}  // namespace runnel::inference

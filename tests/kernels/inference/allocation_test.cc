// A pass of an INT8 graph on backend cpu asks for no memory once one of that size has been there.

#include "gtest/gtest.h"
#include "kernels/models/quantize/quantizer.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/base/counted_allocations.h"
#include "tests/kernels/inference/run_graph.h"
#include "tests/kernels/random_model.h"

namespace runnel::inference::allocation_test {
namespace {

TEST(Allocation, APassOfAGraphMakesNone) {
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
      const auto runner = RunnerOn("cpu", graph);
      std::vector<float> logits(2 * graph.classes());
      const auto run = [&](int64_t batch) {
        const auto bytes = reinterpret_cast<std::byte*>(logits.data());
        const auto given = absl::MakeConstSpan(samples).first(batch * model.input.elements());
        const absl::Status status =
            runner->Run(BytesOf(given), batch, {bytes, batch * graph.classes() * sizeof(float)});
        EXPECT_TRUE(status.ok()) << status;
      };
      // Memory for all of a pass is one piece from the second pass on.
      for (int pass = 0; pass < 3; ++pass) {
        for (int64_t batch : {2, 1}) run(batch);
      }
      const int64_t before = CountedAllocations();
      for (int64_t batch : {2, 1}) run(batch);
      EXPECT_EQ(CountedAllocations(), before);
    }
  }
}

}  // namespace
}  // namespace runnel::inference::allocation_test

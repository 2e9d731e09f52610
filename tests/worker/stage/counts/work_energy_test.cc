// What a program's work costs by the model.

#include "worker/stage/counts/work_energy.h"

#include "gtest/gtest.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "partition/zoo/zoo.h"

namespace runnel::work_energy_test {
namespace {

Program Compile(const std::string& model, const std::string& recipe, int64_t batch) {
  const ModelSpec spec = *MakeModel(model);
  return *CompileStage(spec, 0, spec.layer_count() - 1, batch, **FindRecipe(recipe),
                       {.max_batch = batch});
}

int64_t MacsOfPart(Part part, const Program& program) {
  int64_t macs = 0;
  for (const Instruction& instruction : program.part(part))
    macs += MultiplyAdds(program, instruction);
  return macs;
}

// LeNet: 20 x 24 x 24 x 25, 50 x 8 x 8 x 20 x 25, 800 x 500 and 500 x 10 products.
TEST(WorkEnergy, MacsOfLeNet) {
  constexpr int64_t kFirst = 20 * 24 * 24 * 25;
  constexpr int64_t kOthers = 50 * 8 * 8 * 20 * 25 + 800 * 500 + 500 * 10;
  for (const char* recipe : {"fp32", "niti", "dorefa:2,2,4"}) {
    const Program program = Compile("lenet", recipe, 4);
    EXPECT_EQ(MacsOfPart(Part::kForward, program), 4 * (kFirst + kOthers)) << recipe;
    EXPECT_EQ(MacsOfPart(Part::kInputGradient, program), 4 * kOthers) << "none for the samples";
    EXPECT_EQ(MacsOfPart(Part::kWeightGradient, program), 4 * (kFirst + kOthers));
    EXPECT_EQ(MacsOfPart(Part::kUpdate, program), 0);
  }
}

// Products that rescale their own sums multiply as often as those that leave them in memory.
TEST(WorkEnergy, RescaledProductsCountAsProducts) {
  const ModelSpec model = *MakeModel("lenet");
  CompileOptions options = {.max_batch = 4};
  options.rescale.mode = RescaleMode::kSpeculate;
  options.rescales_in_products = true;
  const Program fused =
      *CompileStage(model, 0, model.layer_count() - 1, 4, **FindRecipe("niti"), options);
  const Program plain = Compile("lenet", "niti", 4);
  for (const Part part : {Part::kForward, Part::kForwardEval, Part::kInputGradient}) {
    EXPECT_NE(fused.part(part).size(), plain.part(part).size());
    EXPECT_EQ(MacsOfPart(part, fused), MacsOfPart(part, plain));
  }
  EXPECT_GT(ModelJoules(Part::kForward, fused),
            static_cast<double>(MacsOfPart(Part::kForward, plain)) *
                TypeOf(DType::kInt8).mac_picojoules * 1e-12);
}

// A depthwise convolution multiplies each element with the weights of one channel only.
TEST(WorkEnergy, GroupsDivideTheProducts) {
  const Program program = Compile("mobilenet_v2", "fp32", 1);
  for (const Instruction& instruction : program.part(Part::kForward)) {
    if (instruction.code != OpCode::kConvForward || instruction.attributes.groups == 1) continue;
    const Buffer& y = program.buffers[instruction.outputs[0]];
    EXPECT_EQ(MultiplyAdds(program, instruction), y.shape.elements() * 9);
  }
}

TEST(WorkEnergy, EightBitsCostLess) {
  const Program fp32 = Compile("vgg11", "fp32", 8);
  const Program niti = Compile("vgg11", "niti", 8);
  const double macs = static_cast<double>(MacsOfPart(Part::kForward, fp32));
  const double joules = ModelJoules(Part::kForward, fp32);
  EXPECT_GT(joules, macs * TypeOf(DType::kFloat32).mac_picojoules * 1e-12);
  EXPECT_LT(ModelJoules(Part::kForward, niti), joules / 2);
  EXPECT_GT(ModelJoules(Part::kForward, niti), macs * TypeOf(DType::kInt8).mac_picojoules * 1e-12);
  EXPECT_GT(ModelJoules(Part::kUpdate, fp32), 0);
}

TEST(WorkEnergy, AProcessorTakesItsShareOrWhatWasMeasured) {
  const Program program = Compile("lenet", "niti", 4);
  for (const Instruction& instruction : program.part(Part::kForward)) {
    const double joules = InstructionJoules(program, instruction);
    EXPECT_DOUBLE_EQ(InstructionJoules(program, instruction, {.share = 0.25}), joules / 4);
    EXPECT_DOUBLE_EQ(InstructionJoules(program, instruction, {.share = 0.25, .mac_picojoules = 2}),
                     static_cast<double>(MultiplyAdds(program, instruction)) * 2e-12);
  }
}

TEST(WorkEnergy, ADspHasALowerRowThanTheProcessor) {
  double cpu = 0, hexagon = 0;
  for (const BackendRow& row : BuiltinBackends()) {
    if (row.name == "cpu") cpu = row.energy;
    if (row.name == "hexagon") hexagon = row.energy;
  }
  EXPECT_EQ(cpu, 1);
  EXPECT_GT(hexagon, 0);
  EXPECT_LT(hexagon, cpu);
}

// Each instruction by the processor that computes it.
TEST(WorkEnergy, SeveralProcessorsTakeEachItsOwn) {
  const Program program = Compile("lenet", "niti", 4);
  BackendSettings settings;
  settings.options = *BackendOptions::Parse("cpu.mac_pj=8");
  const auto joules = [&](const char* names) {
    const auto backend = *MakeBackend(names, settings);
    const auto executable = *backend->Prepare(program);
    return PartJoules(Part::kForward, program, *executable, *backend);
  };
  const double macs = static_cast<double>(MacsOfPart(Part::kForward, program));
  EXPECT_DOUBLE_EQ(joules("cpu"), macs * 8e-12);
  EXPECT_DOUBLE_EQ(joules("cpu,ref@*=cpu"), macs * 8e-12);
  EXPECT_DOUBLE_EQ(joules("ref"), ModelJoules(Part::kForward, program));
  EXPECT_DOUBLE_EQ(joules("cpu,ref@*=ref"), ModelJoules(Part::kForward, program));
  double products_on_cpu = 0;
  for (const Instruction& instruction : program.part(Part::kForward)) {
    products_on_cpu += instruction.code == OpCode::kInt8ConvForward
                           ? static_cast<double>(MultiplyAdds(program, instruction)) * 8e-12
                           : InstructionJoules(program, instruction);
  }
  EXPECT_NEAR(joules("cpu,ref@int8_conv_forward=cpu+*=ref"), products_on_cpu,
              products_on_cpu * 1e-9);
}

}  // namespace
}  // namespace runnel::work_energy_test

#include "tests/transport/control_messages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/figures/figure_fields.h"
#include "proto/base/training/dials/gradient_bits.h"

namespace runnel {

std::string RandomControlMessages::Text() {
  static const char* const kCharacters[] = {"a", "Z", "7", "-", " ", "\xC3\xA4", "\xE2\x82\xAC"};
  std::string text = "t";
  for (int64_t i = Below(12); i > 0; --i) text += kCharacters[Below(7)];
  return text;
}

std::string RandomControlMessages::Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(Below(256));
  return bytes;
}

std::vector<std::string> RandomControlMessages::Names() {
  std::vector<std::string> names;
  for (int64_t i = 1 + Below(4); i > 0; --i) names.push_back(Text());
  return names;
}

std::vector<int64_t> RandomControlMessages::Milestones() {
  std::vector<int64_t> milestones;
  for (int64_t i = Below(4); i > 0; --i) milestones.push_back(1 + Below(300));
  return milestones;
}

OpSpec RandomControlMessages::Op(OpKind kind, std::vector<int32_t> inputs) {
  OpSpec op;
  op.kind = kind;
  op.inputs = std::move(inputs);
  op.out_channels = 1 + Below(8);
  op.bias = Below(2) == 1;
  op.rate = Real();
  op.epsilon = Real();
  op.momentum = Real();
  op.init = static_cast<InitKind>(1 + Below(4));
  op.init_std = Real();
  return op;
}

ModelSpec RandomControlMessages::Model() {
  ModelSpec model;
  model.name = Text();
  model.input = {1 + Below(3), 16, 16};
  model.classes = 1 + Below(10);
  for (int64_t i = Below(3); i >= 0; --i) {
    LayerSpec layer{Text(), {}};
    OpSpec conv = Op(OpKind::kConv, {0});
    conv.kernel = {1 + Below(3), 1 + Below(3)};
    conv.stride = {1 + Below(2), 1 + Below(2)};
    conv.padding = {1, 2};
    if (Below(2) == 1) {
      conv.padding_end = {2 + Below(2), 2};
      conv.dilation = {1 + Below(2), 1};
      conv.begin = Below(3);
      conv.counts_padding = true;
      conv.options = {0, 6, static_cast<int32_t>(Below(33)), 8};
      conv.held = true;
    }
    layer.recompute = Below(2) == 1;
    if (Below(2) == 1) layer.stash = DType::kE4M3;
    layer.ops.push_back(conv);
    layer.ops.push_back(Op(OpKind::kBatchNorm, {1}));
    layer.ops.push_back(Op(static_cast<OpKind>(4 + Below(3)), {2}));
    layer.ops.push_back(Op(OpKind::kAdd, {2, 3}));
    model.layers.push_back(layer);
  }
  OpSpec linear = Op(OpKind::kLinear, {1});
  linear.out_channels = model.classes;
  model.layers.push_back({Text(), {Op(OpKind::kGlobalAvgPool, {0}), linear}});
  return model;
}

Plan RandomControlMessages::PlanFor(int layers) {
  Plan plan;
  plan.generation = Generation(static_cast<int32_t>(Below(100)));
  plan.schedule = Text();
  plan.drains_each_step = Below(2) == 1;
  int64_t cap = 10 + Below(9);
  for (int first = 0; first < layers;) {
    const int last = first + static_cast<int>(Below(layers - first));
    plan.stages.push_back(
        {{Seat{DeviceId(static_cast<int32_t>(Below(50)))}}, first, last, cap, Below(3)});
    plan.stages.back().recompute = Below(2) == 1;
    if (first > 0) plan.links.push_back({Schedule(), Schedule()});
    first = last + 1;
    cap -= Below(2);
  }
  return plan;
}

CodecId RandomControlMessages::Codec() {
  CodecId codec{absl::StrCat("c", Below(9)), std::nullopt};
  if (Below(2) == 1) codec.parameter = static_cast<double>(Below(100)) / 8;
  return codec;
}

CodecSchedule RandomControlMessages::Schedule() {
  std::vector<CodecStep> steps;
  for (int64_t epoch = 0; epoch < 30; epoch += 1 + Below(30)) steps.push_back({epoch, Codec()});
  return CodecSchedule(std::move(steps));
}

std::vector<CodecFamily> RandomControlMessages::Families() {
  std::vector<CodecFamily> families;
  for (int64_t i = 1 + Below(4); i > 0; --i) {
    const auto min = static_cast<double>(Below(9));
    families.push_back({Text(),
                        {static_cast<ParameterRange::Kind>(Below(3)), min,
                         min + static_cast<double>(Below(9)), static_cast<double>(1 + Below(3))}});
  }
  return families;
}

TensorData RandomControlMessages::Tensor() {
  TensorData tensor;
  tensor.name = Text();
  tensor.dtype = static_cast<DType>(1 + Below(6));
  for (int64_t rank = Below(5); rank > 0; --rank) tensor.shape = tensor.shape.Prepend(1 + Below(4));
  tensor.bytes = Bytes(tensor.shape.elements() * SizeOf(tensor.dtype));
  tensor.bytes[0] = 'x';  // zeros go without bytes
  // Values are finite: a bit of each exponent is zero.
  const size_t size = SizeOf(tensor.dtype);
  for (size_t i = size - 1; IsFloat(tensor.dtype) && i < tensor.bytes.size(); i += size)
    tensor.bytes[i] = static_cast<char>(tensor.bytes[i] & ~0x40);
  return tensor;
}

ModelState RandomControlMessages::State() {
  ModelState state;
  for (int layer = static_cast<int>(Below(3)), left = static_cast<int>(Below(5)); left > 0;
       --left, layer += 1 + static_cast<int>(Below(9))) {
    LayerState one{layer, {}, {}};
    for (int64_t i = Below(4); i > 0; --i) one.tensors.push_back(Tensor());
    for (int64_t i = Below(4); i > 0; --i) one.slots.push_back(Tensor());
    state.layers.push_back(std::move(one));
  }
  for (int64_t i = Below(3); i > 0; --i) {
    state.encoders.push_back({static_cast<int>(Below(99)), kDirections[Below(2)], Text(),
                              Bytes(static_cast<size_t>(Below(50)))});
  }
  return state;
}

std::vector<ProcessorFacts> RandomControlMessages::Processors() {
  std::vector<ProcessorFacts> list;
  for (int64_t i = 1 + Below(4); i > 0; --i) {
    list.push_back({Text(), static_cast<ProcessorState>(Below(kProcessorStateCount)), Text(),
                    Text(), Below(1000), Below(1000000), Text(), Below(2) == 1, Text()});
  }
  return list;
}

TrainingSettings RandomControlMessages::Settings() {
  TrainingSettings settings;
  settings.seed = engine_();
  settings.min_samples = 1 + Below(2);
  settings.dataset_samples = 1000 + Below(100000);
  settings.batch_size = 2 + Below(512);
  settings.micro_batches = 1 + Below(8);
  settings.eval_batch_size = 1 + Below(512);
  settings.learning_rate = Real();
  settings.momentum = Real();
  settings.weight_decay = Real();
  settings.look_ahead = static_cast<double>(Below(100)) / 100;
  settings.raised_look_ahead = static_cast<double>(Below(100)) / 100;
  settings.aggregate_every = Below(1000000);
  if (Below(2) == 1) settings.augment = "crop,flip";
  if (Below(2) == 1) settings.rescale = absl::StrCat("adaptive:", Below(1000), ",7");
  if (Below(2) == 1) settings.batch_split = absl::StrCat("shifted:", 1 + Below(1000));
  settings.stale_rate_steps = Below(1000000);
  settings.milestones = Milestones();
  settings.milestone_factor = Real();
  for (int64_t epoch = 0, left = Below(4); left > 0; --left, epoch += 1 + Below(50)) {
    settings.gradient_bits.push_back(
        {epoch, {static_cast<int32_t>(Below(16)) - 8, static_cast<int32_t>(Below(16)) - 8}});
  }
  return settings;
}

Telemetry RandomControlMessages::Figures(Generation generation) {
  Telemetry telemetry{generation};
  for (const FigureField& field : FigureFields()) {
    if (const auto* real = std::get_if<double Telemetry::*>(&field.member))
      telemetry.** real = Real();
    else if (const auto* histogram = std::get_if<Histogram Telemetry::*>(&field.member))
      (telemetry.**histogram).Add(1 + Below(4'000'000'000));
    else
      telemetry.*std::get<int64_t Telemetry::*>(field.member) = 1 + Below(1000000);
  }
  telemetry.battery_charge = 0.25;
  telemetry.celsius = 48.5;
  telemetry.correct = Below(telemetry.loss_samples);
  telemetry.energy_source = static_cast<EnergySource>(Below(kEnergySourceCount));
  return telemetry;
}

WorkerMessage RandomControlMessages::FromWorker(size_t index) {
  const Generation generation(static_cast<int32_t>(1 + Below(1000)));
  const Sequence sequence(1 + Below(1000000));
  const int64_t samples = 1000 + Below(1000);
  const auto count = [&] { return 1 + Below(1000000); };
  const WorkerMessage messages[] = {
      WorkerHello{kProtocolVersion, absl::StrCat("w", samples, ".a_b-C"), Text(), Text(), Names(),
                  Names(), Families(), Text(), 1 + Below(1000000), Text(), count(), Text(),
                  Processors(), Text(), Text(), absl::StrCat("site-", samples), Text()},
      ProfileReport{{Real(), Real(), Real()},
                    {Real(), Real(), Real()},
                    0.25,
                    Below(2) == 1,
                    {0.25, 0.5, Real(), Real(), Real()},
                    generation,
                    Text(),
                    Text(),
                    Text()},
      StageReady{generation},
      BarrierReached{generation, sequence},
      Snapshot{generation, sequence, State()},
      EvaluationDone{generation, sequence, Real(), 1 + Below(999), samples, {9, 5, {4, 1, 2, 2}}},
      Figures(generation),
      StageFailed{generation, Text(), Below(2) == 1, Below(2) == 1 ? "opencl" : "",
                  static_cast<NotFinite>(Below(4))},
      LayersFetched{generation, State()},
      StagePrepared{generation, Text()},
      ProfileFailed{Text(), Below(2) == 1, generation},
      ProfileProgress{0.5, generation},
      WayMeasured{Real(), 1 + Below(1000)},
      ProbePiece{1, 5, Text(), Below(1000)},
      Leaving{Text()},
      Heartbeat{WorkerPhase::kPreparing, 1 + Below(1000000), /*arrived_ns=*/0, 1 + Below(1000000)},
      Replicated{{generation, sequence},
                 1 + Below(999),
                 1 + Below(999),
                 samples,
                 static_cast<int>(Below(9))},
      ProgramReport{generation,
                    {1,
                     2,
                     samples,
                     Names(),
                     {{Text(), 1, 2, Text(), Text(), Real(), Below(2) == 1, Real(), count()},
                      {Text(), 0, 0, "", Text(), Real(), true, Real(), count()}}},
                    Text()},
      ProcessorList{Processors()},
      DryRunDone{generation, sequence, {1 + Below(9), Real(), Real(), Real(), Real()}},
      TraceReport{{{SpanKind::kStep, 1 + Below(9), 1 + Below(1000000), 1 + Below(999)},
                   {SpanKind::kDecodeGradient, 0, 1 + Below(1000000), 0}},
                  Below(9),
                  Below(9)}};
  static_assert(std::size(messages) == std::variant_size_v<WorkerMessage>);
  return messages[index];
}

CentralMessage RandomControlMessages::FromCentral(size_t index) {
  const ModelSpec model = Model();
  const Generation generation(static_cast<int32_t>(1 + Below(1000)));
  PrepareStage prepare;
  prepare.plan = PlanFor(model.layer_count());
  prepare.stage = static_cast<int>(prepare.plan.stages.size()) - 1;
  prepare.plain_loop = prepare.plan.stages.size() == 1;
  prepare.model = model;
  prepare.training = Settings();
  prepare.eval_samples = 1 + Below(1000);
  for (std::string* text : {&prepare.recipe, &prepare.backend, &prepare.link_token,
                            &prepare.link_greeting, &prepare.upstream_peer})
    *text = Text();
  prepare.downstream = {Text(), Text(), Text(), Text()};
  prepare.shaping = {Real(), Real()};
  prepare.first_sequence = Sequence(1 + Below(1000000));
  prepare.changes = {ChangeOfGradientBits(1 + Below(9), {7, -8}),
                     ChangeOfGradientBits(10 + Below(9), {1, 2})};
  prepare.state = State();
  prepare.draws_state = prepare.state.layers.empty();
  prepare.starts_over = Below(2) == 1;
  if (Below(2) == 1) prepare.replica = ReplicaId{generation, Sequence(1 + Below(1000000))};
  const CentralMessage messages[] = {
      Welcome{DeviceId(static_cast<int32_t>(1 + Below(100))), Text(), 1 + Below(9)},
      Refused{Text(), Below(2) == 1},
      ProfileRequest{model,
                     Text(),
                     Text(),
                     1 + Below(99),
                     1 + Below(99),
                     {{0, model.layer_count() - 1}, {0, 0}},
                     Real(),
                     Real(),
                     {1 + Below(64), 1},
                     Real(),
                     Below(9),
                     Below(2) == 1,
                     {Text(), Text()},
                     generation},
      prepare,
      RunUntil{
          generation, Sequence(1 + Below(1000000)), {ChangeOfGradientBits(1 + Below(99), {3, -2})}},
      SnapshotRequest{generation, Sequence(1 + Below(1000000)), Below(2) == 1},
      EvaluateRequest{generation, Sequence(1 + Below(1000000)), 1 + Below(99)},
      Release{},
      FetchLayers{generation, {{0, 2}, {5, 5}}, ReplicaId{generation, Sequence(7 + Below(9))}},
      CommitPlan{generation},
      AbortPlan{generation},
      ProbePiece{0, 2, Text(), Below(1000)},
      Replicate{{generation, Sequence(1 + Below(1000000))}, {static_cast<int>(Below(9)), 3}},
      CommitReplicas{{generation, Sequence(1 + Below(1000000))}},
      RelayWanted{Text(), Text()},
      ProgramRequest{generation,
                     model,
                     Text(),
                     Text(),
                     {0, model.layer_count() - 1},
                     1 + Below(99),
                     Below(2) == 1,
                     Below(2) == 1,
                     Settings()},
      Awaiting{Below(9), 9},
      DryRunRequest{generation, Sequence(Below(99)), 1 + Below(9), {3, false, Below(2) == 1}},
      TraceRequest{1 + Below(kMaxTraceNs), Below(9)}};
  static_assert(std::size(messages) == std::variant_size_v<CentralMessage>);
  return messages[index];
}

}  // namespace runnel

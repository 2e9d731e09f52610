#include "kernels/backends/mixed/mixed_executable.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/host/host_memory.h"
#include "kernels/backends/mixed/processor_memory.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Segments by number.
struct Range {
  size_t begin = 0, end = 0;
};

class MixedExecutable final : public Executable {
 public:
  explicit MixedExecutable(std::shared_ptr<Platform> platform) : platform_(std::move(platform)) {}
  ~MixedExecutable() override {
    platform_->lanes.WaitIdle();
    for (const Backward& backward : backwards_) platform_->versions.EndBackward(backward.gradients);
  }

  absl::Status Prepare(std::vector<Segment> segments) {
    platform_->lanes.WaitIdle();
    segments_ = std::move(segments);
    for (const Segment& segment : segments_) {
      RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                              platform_->processor(segment.processor).Prepare(segment.program));
      executables_.push_back(std::move(executable));
    }
    for (int p = 0; p < static_cast<int>(platform_->processors.size()); ++p)
      RUNNEL_RETURN_IF_ERROR(AllocatePlace(p));
    return absl::OkStatus();
  }

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    const Range range = SegmentsOf(part);
    for (size_t i = range.begin; i < range.end; ++i)
      RUNNEL_RETURN_IF_ERROR(CheckBound(segments_[i], bindings));
    switch (part) {
      case Part::kInputGradient:
        return RunInputGradient({context, bindings});
      case Part::kWeightGradient:
        return RunWeightGradient({context, bindings});
      default:
        return RunSegments(std::make_shared<Work>(*this, range, Call{context, bindings}), range);
    }
  }

  const Backend* processor_of(Part part, size_t instruction) const override {
    for (const Segment& segment : segments_) {
      if (segment.part != part) continue;
      const std::vector<int>& all = segment.instructions;
      if (std::find(all.begin(), all.end(), static_cast<int>(instruction)) != all.end())
        return &platform_->processor(segment.processor);
    }
    return nullptr;
  }

  int64_t memory_bytes() const override {
    int64_t bytes = packed_bytes_;
    for (const Place& place : places_) bytes += place.memory->bytes();
    for (const auto& executable : executables_) bytes += executable->memory_bytes();
    return bytes;
  }

 private:
  struct Call {
    StepContext context;
    Bindings bindings;
  };

  // One run of several segments.
  struct Work {
    Work(MixedExecutable& owner, Range range, Call how)
        : executable(owner), segments(range), call(std::move(how)), run(range.end - range.begin) {}

    size_t TaskOf(size_t segment) const { return segment - segments.begin; }
    std::vector<size_t> TasksBefore(size_t segment) const {
      std::vector<size_t> tasks;
      for (const int before : executable.segments_[segment].after) {
        if (static_cast<size_t>(before) >= segments.begin)
          tasks.push_back(TaskOf(static_cast<size_t>(before)));
      }
      return tasks;
    }

    MixedExecutable& executable;
    const Range segments;
    const Call call;
    LaneRun run;
  };
  // However a run ends, when this is destroyed no more work begins, and work under way has left the
  // caller's memory.
  class Ending {
   public:
    explicit Ending(Work& work) : work_(work) {}
    ~Ending() { work_.run.Withdraw(0, work_.segments.end - work_.segments.begin); }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    Work& work_;
  };
  enum class How : uint8_t { kWhole, kWithoutResults, kResultsOnly };

  // Bindings of one processor's segments.
  struct Place {
    std::unique_ptr<Memory> in, out;          // kInput and kOutput
    std::unique_ptr<ProcessorMemory> memory;  // nothing for the host
  };

  // Weight-gradients that began during kInputGradient.
  struct Early {
    Sequence sequence;
    std::shared_ptr<Work> work;
  };
  struct Backward {
    Sequence sequence;
    const std::byte* gradients = nullptr;
  };

  absl::Status AllocatePlace(int processor) {
    int64_t in_bytes = 0, out_bytes = 0;
    for (const Segment& segment : segments_) {
      if (segment.processor != processor) continue;
      in_bytes = std::max(in_bytes, segment.in_bytes);
      out_bytes = std::max(out_bytes, segment.out_bytes);
    }
    Place& place = places_.emplace_back();
    RUNNEL_ASSIGN_OR_RETURN(place.in, AllocateHostMemory(in_bytes));
    RUNNEL_ASSIGN_OR_RETURN(place.out, AllocateHostMemory(out_bytes));
    packed_bytes_ += in_bytes + out_bytes;
    place.memory = std::make_unique<ProcessorMemory>(*platform_, processor);
    return processor == 0 ? absl::OkStatus() : place.memory->Allocate(segments_);
  }

  Range SegmentsOf(Part part) const {
    const auto is_before = [](const Segment& segment, Part of) { return segment.part < of; };
    const auto is_after = [](Part of, const Segment& segment) { return of < segment.part; };
    const auto begin = std::lower_bound(segments_.begin(), segments_.end(), part, is_before);
    const auto end = std::upper_bound(begin, segments_.end(), part, is_after);
    return {static_cast<size_t>(begin - segments_.begin()),
            static_cast<size_t>(end - segments_.begin())};
  }

  static absl::Status CheckBound(const Segment& segment, const Bindings& bindings) {
    for (const auto* copies :
         {&segment.in, &segment.out, &segment.state_read, &segment.state_written}) {
      for (const TensorCopy& copy : *copies) {
        if (bindings[copy.storage] != nullptr) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("storage ", Name(copy.storage), " is not bound"));
      }
    }
    return absl::OkStatus();
  }

  // Gives a segment of another processor to its lane.
  void Post(const std::shared_ptr<Work>& work, size_t segment, How how) {
    platform_->lanes.Post(segments_[segment].processor, [work, segment, how] {
      work->run.Do(work->TaskOf(segment), work->TasksBefore(segment),
                   [&] { return work->executable.RunSegment(*work, segment, how); });
    });
  }

  // Runs the segments of the range in order: the host's here; the others are posted.
  absl::Status RunSegments(const std::shared_ptr<Work>& work, Range range) {
    const Ending ending(*work);
    for (size_t i = range.begin; i < range.end; ++i) {
      if (segments_[i].processor > 0) Post(work, i, How::kWhole);
    }
    RunHosts(*work, range);
    return work->run.status();
  }

  // Returns when all segments of the range are done.
  void RunHosts(Work& work, Range range) {
    for (size_t i = range.begin; i < range.end; ++i) {
      if (segments_[i].processor > 0) continue;
      work.run.Do(work.TaskOf(i), work.TasksBefore(i),
                  [&] { return RunSegment(work, i, How::kWhole); });
    }
    work.run.Wait(work.TaskOf(range.begin), work.TaskOf(range.end));
  }

  absl::Status RunInputGradient(const Call& call) {
    const Range own = SegmentsOf(Part::kInputGradient), later = SegmentsOf(Part::kWeightGradient);
    const bool is_alone = BeginBackward(call);
    const auto work = std::make_shared<Work>(*this, Range{own.begin, later.end}, call);
    const Ending ending(*work);
    for (size_t i = own.begin; i < own.end; ++i) {
      if (segments_[i].processor > 0) Post(work, i, How::kWhole);
    }
    if (is_alone) PostEarly(work, later);
    RunHosts(*work, own);
    work->run.Withdraw(work->TaskOf(later.begin), work->TaskOf(later.end));
    if (absl::Status status = work->run.status(); !status.ok()) {
      work->run.Wait(0, work->TaskOf(later.end));
      return status;
    }
    if (is_alone) early_ = {call.context.sequence, work};
    return absl::OkStatus();
  }

  absl::Status RunWeightGradient(const Call& call) {
    const Range range = SegmentsOf(Part::kWeightGradient);
    std::shared_ptr<Work> early;
    if (early_.has_value()) {
      if (early_->sequence != call.context.sequence) {
        return absl::FailedPreconditionError(
            absl::StrCat("weight-gradient of micro-batch ", call.context.sequence.value(),
                         " before that of ", early_->sequence.value()));
      }
      early = std::exchange(early_, std::nullopt)->work;
    }
    const auto work = std::make_shared<Work>(*this, range, call);
    const Ending ending(*work);
    for (size_t i = range.begin; i < range.end; ++i) {
      if (segments_[i].processor == 0) continue;
      const bool has_begun = early != nullptr && early->run.has_begun(early->TaskOf(i));
      Post(work, i, has_begun ? How::kResultsOnly : How::kWhole);
    }
    RunHosts(*work, range);
    EndBackward(call);
    // An early failure is the reason of missing results.
    if (early != nullptr) RUNNEL_RETURN_IF_ERROR(early->run.status());
    return work->run.status();
  }

  // Weight-gradients that may run while kInputGradient does: of each processor the first ones, as
  // long as all they leave is state.
  void PostEarly(const std::shared_ptr<Work>& work, Range range) {
    std::vector<bool> may_go_on(places_.size(), true);
    may_go_on[0] = false;
    for (size_t i = range.begin; i < range.end; ++i) {
      const auto processor = static_cast<size_t>(segments_[i].processor);
      may_go_on[processor] = may_go_on[processor] && segments_[i].out.empty() &&
                             CheckBound(segments_[i], work->call.bindings).ok();
      if (may_go_on[processor]) Post(work, i, How::kWithoutResults);
    }
  }

  // Whether no other micro-batch's weight-gradients are still to come: they are added up in the
  // order of the micro-batches.
  bool BeginBackward(const Call& call) {
    const std::byte* gradients = call.bindings[Storage::kGradients];
    const Sequence sequence = call.context.sequence;
    // Once more, without its weight-gradient: nobody wants what began then.
    if (early_.has_value() && early_->sequence == sequence) {
      platform_->lanes.WaitIdle();
      early_.reset();
    }
    EndBackward(call);
    backwards_.push_back({sequence, gradients});
    return platform_->versions.BeginBackward(gradients);
  }

  void EndBackward(const Call& call) {
    const auto found = std::find_if(
        backwards_.begin(), backwards_.end(),
        [&](const Backward& backward) { return backward.sequence == call.context.sequence; });
    if (found == backwards_.end()) return;
    platform_->versions.EndBackward(found->gradients);
    backwards_.erase(found);
  }

  absl::Status RunSegment(Work& work, size_t number, How how) {
    const Segment& segment = segments_[number];
    const Bindings& bindings = work.call.bindings;
    Place& place = places_[static_cast<size_t>(segment.processor)];
    if (how != How::kResultsOnly) {
      for (const TensorCopy& copy : segment.in) {
        CopyTensor(copy, bindings[copy.storage] + copy.offset_bytes,
                   place.in->address() + copy.packed_bytes);
      }
      Bindings own = bindings;
      own[Storage::kInput] = place.in->address();
      own[Storage::kOutput] = place.out->address();
      if (segment.processor > 0) {
        CountSegment(segment);
        RUNNEL_RETURN_IF_ERROR(place.memory->Enter(segment, work.call.context, bindings, own));
      }
      if (how == How::kWithoutResults) work.run.LeaveCallersMemory(work.TaskOf(number));
      RUNNEL_RETURN_IF_ERROR(executables_[number]->Run(segment.part, work.call.context, own));
    }
    return how == How::kWithoutResults ? absl::OkStatus() : LeaveResults(segment, bindings);
  }

  absl::Status LeaveResults(const Segment& segment, const Bindings& bindings) {
    const Place& place = places_[static_cast<size_t>(segment.processor)];
    for (const TensorCopy& copy : segment.out) {
      CopyTensor(copy, place.out->address() + copy.packed_bytes,
                 bindings[copy.storage] + copy.offset_bytes);
    }
    if (segment.processor > 0) RUNNEL_RETURN_IF_ERROR(place.memory->Leave(segment, bindings));
    for (const TensorCopy& copy : segment.state_written) {
      if (copy.storage == Storage::kParameters || copy.storage == Storage::kNewParameters)
        platform_->versions.Renew(bindings[copy.storage]);
    }
    return absl::OkStatus();
  }

  void CountSegment(const Segment& segment) {
    Traffic& traffic = platform_->traffic;
    ++traffic.segments;
    for (const TensorCopy& copy : segment.in) traffic.bytes_to_processors += copy.bytes();
    for (const TensorCopy& copy : segment.out) traffic.bytes_from_processors += copy.bytes();
  }

  const std::shared_ptr<Platform> platform_;
  std::vector<Segment> segments_;                         // part by part
  std::vector<std::unique_ptr<Executable>> executables_;  // of segments, by number
  std::vector<Place> places_;                             // by processor
  int64_t packed_bytes_ = 0;
  std::optional<Early> early_;
  std::vector<Backward> backwards_;  // micro-batches whose weight-gradients are to come
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executable>> PrepareSegments(std::vector<Segment> segments,
                                                            std::shared_ptr<Platform> platform) {
  auto executable = std::make_unique<MixedExecutable>(std::move(platform));
  RUNNEL_RETURN_IF_ERROR(executable->Prepare(std::move(segments)));
  return executable;
}

}  // namespace runnel

#include "kernels/backends/hexagon/device/device_session.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/lost_backend.h"
#include "proto/base/status_macros.h"

namespace runnel::hexagon {
namespace {

// Lists that get no VTCM are sent again, after twice as long each time; each also waits on the DSP.
constexpr int kMostVtcmRefusals = 4;
constexpr int kVtcmPauseMs = 10;

using Clock = std::chrono::steady_clock;
using Bytes = std::optional<std::vector<std::byte>>;

// Adds the ranges that the operation writes, as whole lines with their slack.
void AddWritten(const DspOp& op, RangeSet* written) {
  for (const DspTensor& tensor : op.out) {
    if (tensor.data == 0) continue;
    written->Add(tensor.data, tensor.elements * tensor.bytes + kSlackBytes);
    if (tensor.tail != 0) written->Add(tensor.tail, kTailBytes);
  }
}

class DeviceSession final : public DspSession {
 public:
  DeviceSession(const DeviceSessionOptions& options, DeviceLink link)
      : options_(options),
        link_(std::move(link)),
        name_(absl::StrCat("v", link_.dsp.arch, "-device")) {}

  absl::Status Open() {
    const DspRequest open = {.verb = DspVerb::kOpen,
                             .shared_bytes = options_.link.shared_bytes,
                             .vtcm_bytes = link_.dsp.vtcm_bytes,
                             .private_bytes = options_.link.private_bytes,
                             .shared_file = static_cast<uint32_t>(memory()->file()),
                             .packed_bytes = packed_bytes(),
                             .threads = options_.threads > 0 ? options_.threads : VectorUnits()};
    RUNNEL_RETURN_IF_ERROR(Send(open, RangeSet()));
    RUNNEL_ASSIGN_OR_RETURN(const DspReply reply, Receive());
    if (reply.status == DspStatus::kOk) return absl::OkStatus();
    return Lose(absl::StrCat(" refused to open a session (status ",
                             static_cast<uint32_t>(reply.status), ")"));
  }

  const char* name() const override { return name_.c_str(); }
  std::string description() const override {
    const DspCapabilities& dsp = link_.dsp;
    return absl::StrCat("v", dsp.arch, ", ", dsp.vector_units, " vector units, ",
                        dsp.vtcm_bytes >> 10, " KiB VTCM, by ", link_.way, " with ", link_.object,
                        ", not verified on hardware");
  }
  const std::shared_ptr<SharedMemory>& memory() const override { return link_.memory; }
  bool lost() const override { return !lost_.ok(); }
  absl::Span<const DspCounts> counts() const override { return counts_; }

  // Half of the DSP's own memory; the other half is one operation's.
  uint32_t packed_bytes() const override { return options_.link.private_bytes / 2; }
  void KeepPlaces(uint32_t kept_bytes) override { kept_bytes_ = kept_bytes; }

  // Lists that write to more places than a packet names go in pieces; Wait sends the later ones.
  ListTraffic traffic() const override { return sender_.traffic(); }

  absl::Status Submit(absl::Span<const DspOp> ops, uint64_t list) override {
    RUNNEL_RETURN_IF_ERROR(lost_);
    if (ops.empty() || ops.size() > kMaxOps) {
      return absl::InvalidArgumentError(absl::StrCat(ops.size(), " operations in a list"));
    }
    ops_.assign(ops.begin(), ops.end());
    list_ = list;
    counts_.assign(ops.size(), DspCounts());  // a device counts nothing
    done_ = 0;
    return SendPiece();
  }

  absl::Status Wait() override {
    RUNNEL_RETURN_IF_ERROR(lost_);
    int refusals = 0;
    for (;;) {
      RUNNEL_ASSIGN_OR_RETURN(const DspReply reply, Receive());
      if (reply.status == DspStatus::kNoVtcm && refusals < kMostVtcmRefusals) {
        // Nothing of the piece was run. Another program's list may be over soon.
        std::this_thread::sleep_for(std::chrono::milliseconds(kVtcmPauseMs << refusals++));
        RUNNEL_RETURN_IF_ERROR(SendPiece());
        continue;
      }
      RUNNEL_RETURN_IF_ERROR(Check(reply));
      done_ += piece_;
      refusals = 0;
      if (done_ == ops_.size()) return absl::OkStatus();
      RUNNEL_RETURN_IF_ERROR(SendPiece());
    }
  }

 private:
  // A thread more would wait for a vector unit.
  uint32_t VectorUnits() const {
    return static_cast<uint32_t>(
        std::clamp(static_cast<int>(link_.dsp.vector_units), 1, static_cast<int>(kMaxThreads)));
  }
  DspDesk& desk() const { return *reinterpret_cast<DspDesk*>(memory()->base()); }

  absl::Status Send(DspRequest request, const RangeSet& written) {
    request.sequence = ++sequence_;
    *const_cast<volatile uint32_t*>(&desk().ops_done) = 0;
    memory()->RecordChange(0, offsetof(DspDesk, changes));
    RangeSet changed = memory()->TakeChanges();
    changed.JoinTo(kMaxRanges);
    const absl::Status sent = link_.transport->Send(request, changed.ranges(), written.ranges());
    return sent.ok() ? sent : Lose(std::string(sent.message()));
  }

  absl::Status SendPiece() {
    RangeSet written;
    piece_ = 0;
    while (done_ + piece_ < ops_.size()) {
      RangeSet more = written;
      AddWritten(ops_[done_ + piece_], &more);
      if (more.size() > kMaxRanges) break;  // an operation alone has four at most
      written = std::move(more);
      ++piece_;
    }
    DspRequest request = {.verb = DspVerb::kRun,
                          .packed_bytes = packed_bytes(),
                          .kept_bytes = std::min(kept_bytes_, packed_bytes())};
    // Each piece is a list of its own.
    const uint64_t piece = list_ == 0 ? 0 : list_ * kMaxOps + done_;
    const RangeSet desk_changes =
        sender_.Write(piece, absl::MakeConstSpan(ops_).subspan(done_, piece_), desk(), &request);
    for (const DspRange& range : desk_changes.ranges())
      memory()->RecordChange(range.offset, range.bytes);
    const std::vector<DspRange> ranges = written.ranges();
    std::copy(ranges.begin(), ranges.end(), desk().written);
    desk().written_count = static_cast<uint32_t>(ranges.size());
    return Send(request, written);
  }

  absl::StatusOr<DspReply> Receive() {
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<std::byte> answer, AwaitAnswer());
    DspReply reply;
    if (answer.size() != sizeof(reply)) {
      return Lose(absl::StrCat(" answered with a message of a wrong length, which is not ",
                               sizeof(reply), " bytes"));
    }
    std::memcpy(&reply, answer.data(), sizeof(reply));
    if (reply.magic != kDspMagic || reply.sequence != sequence_) return Lose(" answered nonsense");
    return reply;
  }

  // Waits until there is an answer, or nothing was done for too long.
  absl::StatusOr<std::vector<std::byte>> AwaitAnswer() {
    const auto patience = std::chrono::seconds(options_.stall_seconds);
    uint32_t done = 0;
    auto deadline = Clock::now() + patience;
    for (;;) {
      absl::StatusOr<Bytes> answer = link_.transport->Receive(std::chrono::milliseconds(500));
      if (!answer.ok()) return Lose(std::string(answer.status().message()));
      if (*answer) return **std::move(answer);
      const uint32_t now_done = *const_cast<const volatile uint32_t*>(&desk().ops_done);
      if (now_done != done) {
        done = now_done;
        deadline = Clock::now() + patience;
      } else if (Clock::now() > deadline) {
        AbandonDeviceLink(&link_);
        return Lose(absl::StrCat(" hangs: nothing done for ", options_.stall_seconds, " s"));
      }
    }
  }

  absl::Status Check(const DspReply& reply) {
    const std::string which =
        absl::StrCat("operation ", done_ + reply.failed_op, " of ", ops_.size());
    switch (reply.status) {
      case DspStatus::kOk:
        return absl::OkStatus();
      case DspStatus::kNoMemory:
        return MarkLostBackend(
            absl::ResourceExhaustedError(
                absl::StrCat("backend hexagon: the DSP has no memory for ", which, ": ",
                             packed_bytes(), " bytes are for one operation (--device-memory-mb)")),
            "hexagon");
      case DspStatus::kNoVtcm:
        return Lose(absl::StrCat(" got no VTCM (", link_.dsp.vtcm_bytes >> 10,
                                 " KiB): another program on the DSP has it"));
      case DspStatus::kVtcmGone:
        return Lose(absl::StrCat(" gave its VTCM back before ", which,
                                 ", and another program on the DSP keeps it"));
      default:
        return Lose(absl::StrCat(" refused ", which, " (status ",
                                 static_cast<uint32_t>(reply.status), ")"));
    }
  }

  absl::Status Lose(const std::string& why) {
    CloseDeviceLink(&link_);
    lost_ = MarkLostBackend(
        absl::UnavailableError(absl::StrCat("backend hexagon: the DSP program", why)), "hexagon");
    return lost_;
  }

  const DeviceSessionOptions options_;
  DeviceLink link_;
  const std::string name_;
  uint32_t kept_bytes_ = 0;
  uint32_t sequence_ = 0;
  ListSender sender_;
  uint64_t list_ = 0;
  std::vector<DspOp> ops_;  // operations of the list
  size_t done_ = 0;
  size_t piece_ = 0;  // operations that are under way
  std::vector<DspCounts> counts_;
  absl::Status lost_;
};

}  // namespace

std::string DspObjectFolder() {
  std::error_code ignored;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (binary.parent_path().parent_path() / "lib" / "runnel").string();
}

absl::StatusOr<std::unique_ptr<DspSession>> OpenDeviceSession(const DeviceSessionOptions& options) {
  RUNNEL_ASSIGN_OR_RETURN(DeviceLink link, OpenDeviceLink(options.link));
  auto session = std::make_unique<DeviceSession>(options, std::move(link));
  RUNNEL_RETURN_IF_ERROR(session->Open());
  return session;
}

}  // namespace runnel::hexagon

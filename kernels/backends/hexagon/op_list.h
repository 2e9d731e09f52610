#pragma once

// Messages between the host and the DSP program. Both compilers read this header, so it needs
// nothing but fixed-width integers; both sides are little-endian.
// || The host writes a list of operations to the start of the shared memory and sends a DspRequest;
// the program runs them in order and answers with a DspReply. A list that comes again is kept by
// the program, and the host writes the words that changed (DspChange). Offsets are in bytes from
// the start of the shared memory. Requests reach the emulated program through a pipe, a device
// through a packet queue or remote calls (kMethod...).

#include <stdint.h>

namespace runnel::hexagon {

inline constexpr uint32_t kDspMagic = 0x52443158;
// Raised with every change of this header.
inline constexpr uint32_t kDspProtocol = 8;

// A kernel may read so many bytes before and behind a tensor, and write back, unchanged, those
// behind it: vectors are whole.
inline constexpr uint32_t kSlackBytes = 1024;
// Exponents as proto/base/model/number_format.h has them.
inline constexpr uint32_t kTailBytes = 64;

enum class DspCode : uint32_t {
  kCopy = 1,
  kQuantize,
  kRescale,
  kRelu,
  kReluGradient,
  kDropout,
  kAdd,
  kConvForward,
  kConvInputGradient,
  kConvWeightGradient,
  kLinearForward,
  kLinearInputGradient,
  kLinearWeightGradient,
  kMaxPoolForward,
  kMaxPoolInputGradient,
  kAvgPoolForward,
  kAvgPoolInputGradient,
  kGlobalAvgPoolForward,
  kGlobalAvgPoolInputGradient,
  kAddScaledGradient,
  kUpdate,
  kLossGradient,
  // INT8 inference (kernels/ir/arithmetic/code_rule.h).
  kEncodeCodes,
  kRequantizeCodes,
  kAddCodes,
  kPadCodes,
  kCodesToChannelsFirst,
  kCodesToChannelsLast,
};

// Values of runnel::Rounding.
inline constexpr uint32_t kRoundPseudoStochastic = 0;
inline constexpr uint32_t kRoundHalfAway = 1;
inline constexpr uint32_t kRoundStochastic = 2;

// DspOp::flags.
inline constexpr uint32_t kFlagPromoteOneToTwo = 1;
inline constexpr uint32_t kFlagRelu = 2;
inline constexpr uint32_t kFlagPowerOfTwo = 4;
inline constexpr uint32_t kFlagAccumulate = 8;
// A forward or input-gradient product whose out[0] is int8, as kRescale would make it of the sums.
// With kFlagKept they are rounded by `shift`, whatever their maximum; with kFlagGuessed too, and
// again if their maximum asks for another shift.
inline constexpr uint32_t kFlagRescaled = 16;
inline constexpr uint32_t kFlagKept = 32;
inline constexpr uint32_t kFlagGuessed = 64;
// A weight-gradient whose sums of each `slice` samples are rounded by themselves (BatchSplit,
// kernels/ir/program.h).
inline constexpr uint32_t kFlagShifted = 128;

struct DspTensor {
  uint32_t data = 0;  // offset; 0: the operand is absent
  uint32_t tail = 0;  // offset of the ScaleTail; 0: not scaled
  uint32_t elements = 0;
  uint32_t bytes = 0;  // bytes of an element
  // Version of weights: the same number as long as their bytes are the same; 0: unknown.
  uint64_t version = 0;
};

struct DspImages {
  int32_t n = 1, c = 1, h = 1, w = 1;
};

struct DspWindow {
  int32_t kh = 1, kw = 1, sh = 1, sw = 1, ph = 0, pw = 0;
};

// The emulator's counts of an operation: exact and repeatable, but no time.
struct DspCounts {
  uint32_t packets = 0;
  uint32_t instructions = 0;
  uint32_t vector_instructions = 0;
  // Packets from begin to end where threads run beside each other: of these, the longest one's.
  uint32_t longest = 0;
};

struct DspOp {
  DspCode code = DspCode::kCopy;
  uint32_t rounding = kRoundPseudoStochastic;
  uint32_t flags = 0;
  int32_t gradient_bits = 0;  // kUpdate
  DspTensor in[2];
  DspTensor out[2];
  DspImages x;  // the operator's input
  DspImages y;  // its output
  DspWindow window;
  int32_t groups = 1;
  // Dropout keeps an element whose draw's top 24 bits reach this.
  uint32_t threshold = 0;
  int32_t added_exponent = 0;  // dropout
  int32_t shift = 0;           // kFlagKept, kFlagGuessed
  int32_t slice = 0;           // kFlagShifted
  int32_t reserved = 0;
  uint32_t key[2] = {};  // key of the stream of random draws (proto/base/random.h)
  uint32_t sequence[2] = {};
  DspTensor mask;  // kFlagRescaled: as kRescale's; of codes: the third input; may be absent
  // Key of weights: the same number for all versions of them, whose packed forms take one region;
  // 0: none. And the place of their packed form among those that keep one (eviction_plan.h): 1 +
  // its offset; 0: it has none.
  uint32_t packed_key = 0;
  uint32_t kept_place = 0;
  uint32_t reserved_too[4] = {};
};
static_assert(sizeof(DspOp) == 256, "both compilers lay it out alike");
inline constexpr uint32_t kOpWords = sizeof(DspOp) / 4;

// A word of a kept list that gets another value.
struct DspChange {
  // Index of the operation. With kChangesAlike, of all operations whose word is as this one's.
  uint16_t op = 0;
  uint16_t word = 0;
  uint32_t value = 0;
};
inline constexpr uint16_t kChangesAlike = 0x8000;

// out[1] of an operation with kFlagRescaled, if it is there: statistics of its sums.
struct DspSums {
  int64_t max_abs = 0;
  uint32_t saturated = 0;  // |sum| > 2^(7 + shift); only with kFlagKept
  int32_t shift = 0;       // the shift that rounded them
};

struct DspRange {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

// Ranges that a list of operations has at most for each direction: a packet of the device's queue
// refers to 64 buffers.
inline constexpr uint32_t kMaxRanges = 30;

// Lists that the program keeps, and the operations of all of them together.
inline constexpr uint32_t kMaxKeptLists = 256;
inline constexpr uint32_t kMaxKeptOps = 2048;

inline constexpr uint32_t kMaxThreads = 4;

// In this order at the start of the shared memory: the desk, then the host's allocations.
inline constexpr uint32_t kMaxOps = 1024;
inline constexpr uint32_t kMaxChanges = 4096;
struct DspDesk {
  uint32_t ops_done;  // counted up by the program: a sign of life
  uint32_t reserved[31];
  // The operations' writes, needed only if the caches do not see each other's changes.
  DspRange written[kMaxRanges];
  uint32_t written_count;
  uint32_t reserved_too[3];
  DspChange changes[kMaxChanges];
  DspOp ops[kMaxOps];
  DspCounts counts[kMaxOps];  // written by the emulated program
};
inline constexpr uint32_t kDeskBytes = 320 << 10;
static_assert(sizeof(DspDesk) <= kDeskBytes, "the desk has room for the operations");

// kGreet does nothing: it shows that answers come.
enum class DspVerb : uint32_t { kOpen = 1, kRun = 2, kGreet = 3 };

struct DspRequest {
  uint32_t magic = kDspMagic;
  uint32_t sequence = 0;
  DspVerb verb = DspVerb::kRun;
  uint32_t op_count = 0;  // kRun
  uint32_t protocol = kDspProtocol;
  uint32_t shared_bytes = 0;   // kOpen
  uint32_t vtcm_bytes = 0;     // kOpen
  uint32_t private_bytes = 0;  // kOpen: what the program may take for itself
  // For a device: the host's file of the shared memory, which has the private bytes behind the
  // shared ones.
  uint32_t shared_file = 0;
  // Part of the private bytes. kOpen: for packed weights, the rest is the kernels' scratch; kRun:
  // the packed weights' share from now on.
  uint32_t packed_bytes = 0;
  uint32_t kept_bytes = 0;  // kRun: of these, for packed weights that keep a place
  // kRun: the list that is kept, 1..kMaxKeptLists; 0: the desk's operations are run and forgotten.
  uint32_t list = 0;
  // Revision 1: the desk's operations become the list, at this place among the kept operations;
  // lists that lay there are forgotten. A later one: the kept operations with the desk's changes;
  // the program has to have the revision before it.
  uint32_t list_place = 0;
  uint32_t revision = 0;
  uint32_t change_count = 0;
  uint32_t threads = 1;  // kOpen: that an operation may use, 1..kMaxThreads
};

// kNoVtcm: the tightly coupled memory is others', and nothing of the list was done. kVtcmGone: it was
// given back between two operations and others keep it; what was done cannot be done again.
enum class DspStatus : uint32_t {
  kOk = 0,
  kBadRequest = 1,
  kNoMemory = 2,
  kUnknownCode = 3,
  kNoVtcm = 4,
  kVtcmGone = 5
};

struct DspReply {
  uint32_t magic = kDspMagic;
  uint32_t sequence = 0;
  DspStatus status = DspStatus::kOk;
  uint32_t failed_op = 0;
};

// Methods of a device's entry; 0 and 1 open and close it. kMethodRequest: a DspRequest in, then the
// host's changes; a DspReply out, then the list's writes. kMethodAttachQueue: the queue's number
// (64 bits) in; requests come from there, too.
inline constexpr uint32_t kMethodOpen = 0;
inline constexpr uint32_t kMethodClose = 1;
inline constexpr uint32_t kMethodRequest = 2;
inline constexpr uint32_t kMethodAttachQueue = 3;
inline constexpr uint32_t kMethodDetachQueue = 4;
#define RUNNEL_DSP_ENTRY runnel_dsp_skel_handle_invoke

}  // namespace runnel::hexagon

// The tightly coupled memory of a device, by the manager of its compute resources: asked for once, in
// part where others have the rest, and kept until a program of higher priority asks for it; its
// address and size stay the same when it comes back. Systems without the manager give it for a list.
// Not verified on hardware.

#include "kernels/backends/hexagon/dsp/platform.h"

extern "C" {

// Longer than any system's.
struct ResourceAttributes {
  uint64_t words[32];
};
using ReleaseCallback = int (*)(unsigned resource, void* context);

__attribute__((weak)) int compute_resource_attr_init(ResourceAttributes* attributes);
__attribute__((weak)) int compute_resource_attr_set_vtcm_param_v2(ResourceAttributes* attributes,
                                                                  unsigned bytes,
                                                                  unsigned least_page_bytes,
                                                                  unsigned least_bytes);
__attribute__((weak)) int compute_resource_attr_set_cache_mode(ResourceAttributes* attributes,
                                                               uint8_t is_cached);
__attribute__((weak)) int compute_resource_attr_set_release_callback(ResourceAttributes* attributes,
                                                                     ReleaseCallback callback,
                                                                     void* context);
__attribute__((weak)) int compute_resource_attr_get_vtcm_ptr_v2(ResourceAttributes* attributes,
                                                                void** vtcm, unsigned* bytes);
// 0: it cannot be had.
__attribute__((weak)) unsigned compute_resource_acquire(ResourceAttributes* attributes,
                                                        unsigned timeout_us);
__attribute__((weak)) int compute_resource_release(unsigned resource);
__attribute__((weak)) int compute_resource_acquire_cached(unsigned resource, unsigned timeout_us);
__attribute__((weak)) int compute_resource_release_cached(unsigned resource);

void* HAP_request_VTCM(unsigned bytes, unsigned single_page);
__attribute__((weak)) void* HAP_request_async_VTCM(unsigned bytes, unsigned single_page,
                                                   unsigned timeout_us);
int HAP_release_VTCM(void* vtcm);

}  // extern "C"

namespace runnel::hexagon {
namespace {

constexpr int kOk = 0;
constexpr uint32_t kTimeoutUs = 1000000;

// The system's own thread says that it is asked for, so each change is of one who may make it.
enum State : uint32_t {
  kAway,     // others may have it
  kIdle,     // held, and not in use
  kInUse,    // by a list
  kAsked,    // in use, and somebody waits for it
  kLeaving,  // idle, it is being given back
};

class ManagedVtcm {
 public:
  static bool IsThere() {
    return compute_resource_attr_init != nullptr &&
           compute_resource_attr_set_vtcm_param_v2 != nullptr &&
           compute_resource_attr_set_cache_mode != nullptr &&
           compute_resource_attr_set_release_callback != nullptr &&
           compute_resource_attr_get_vtcm_ptr_v2 != nullptr &&
           compute_resource_acquire != nullptr && compute_resource_release != nullptr &&
           compute_resource_acquire_cached != nullptr && compute_resource_release_cached != nullptr;
  }

  // False: the manager has no part of it to give.
  bool Begin(uint32_t most, uint32_t least) {
    // Of a part that was given back there may be more by now.
    if (vtcm_.bytes < most && state() == kAway) Drop();
    if (resource_ != 0) return true;
    ResourceAttributes attributes = {};
    if (compute_resource_attr_init(&attributes) != kOk ||
        compute_resource_attr_set_cache_mode(&attributes, 1) != kOk ||
        compute_resource_attr_set_vtcm_param_v2(&attributes, most, 0, least) != kOk ||
        compute_resource_attr_set_release_callback(&attributes, OnAsked, this) != kOk) {
      return false;
    }
    const unsigned resource = compute_resource_acquire(&attributes, kTimeoutUs);
    if (resource == 0) return false;
    void* base = nullptr;
    unsigned bytes = 0;
    if (compute_resource_attr_get_vtcm_ptr_v2(&attributes, &base, &bytes) != kOk ||
        base == nullptr || bytes < least) {
      compute_resource_release(resource);
      return false;
    }
    vtcm_ = {static_cast<uint8_t*>(base), bytes < most ? bytes : most};
    resource_ = resource;
    return true;
  }

  Vtcm Hold() {
    while (state() == kLeaving) {
    }
    if (Change(kIdle, kInUse)) return vtcm_;
    while (state() == kLeaving) {
    }
    if (compute_resource_acquire_cached(resource_, kTimeoutUs) != kOk) return {};
    Set(kInUse);
    return vtcm_;
  }

  bool IsAsked() const { return state() == kAsked; }

  void Rest() {
    if (!Change(kInUse, kIdle) && state() == kAsked) GiveBack();
  }

  void Drop() {
    if (resource_ == 0) return;
    if (Change(kIdle, kLeaving)) GiveBack();
    while (state() == kLeaving) {
    }
    compute_resource_release(resource_);
    resource_ = 0;
  }

 private:
  // On a thread of the system, which must not wait.
  static int OnAsked(unsigned, void* context) {
    auto& its = *static_cast<ManagedVtcm*>(context);
    if (its.Change(kIdle, kLeaving)) {
      its.GiveBack();
    } else {
      its.Change(kInUse, kAsked);
    }
    return kOk;
  }

  void GiveBack() {
    compute_resource_release_cached(resource_);
    Set(kAway);
  }

  uint32_t state() const { return __atomic_load_n(&state_, __ATOMIC_ACQUIRE); }
  void Set(uint32_t state) { __atomic_store_n(&state_, state, __ATOMIC_RELEASE); }
  bool Change(uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(&state_, &from, to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
  }

  unsigned resource_ = 0;
  Vtcm vtcm_;
  uint32_t state_ = kAway;
};

ManagedVtcm managed;
// Of a list, by the older functions.
uint8_t* requested = nullptr;
bool is_managed = false;

Vtcm Request(uint32_t most, uint32_t least) {
  // A part at once is worth more than the whole after a wait.
  for (uint32_t bytes = most; bytes >= least; bytes = bytes / 2 & ~uint32_t{127}) {
    requested = static_cast<uint8_t*>(HAP_request_VTCM(bytes, 0));
    if (requested != nullptr) return {requested, bytes};
  }
  if (HAP_request_async_VTCM == nullptr) return {};
  requested = static_cast<uint8_t*>(HAP_request_async_VTCM(most, 0, kTimeoutUs));
  return {requested, most};
}

}  // namespace

Vtcm HoldVtcm(uint32_t most, uint32_t least) {
  is_managed = ManagedVtcm::IsThere() && managed.Begin(most, least);
  return is_managed ? managed.Hold() : Request(most, least);
}

bool IsVtcmAsked() { return is_managed && managed.IsAsked(); }

void RestVtcm() {
  if (is_managed) return managed.Rest();
  if (requested != nullptr) HAP_release_VTCM(requested);
  requested = nullptr;
}

void DropVtcm() { managed.Drop(); }

}  // namespace runnel::hexagon

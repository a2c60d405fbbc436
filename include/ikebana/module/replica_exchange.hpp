#pragma once

#include <span>

namespace ikebana::detail {

/// Sums over the replicas of a model, for leaves whose results depend on the batches of all of them
/// (`static constexpr bool exchanges_with_replicas = true`). A replica makes it current for its
/// calls on their thread; elsewhere there is none, and a leaf has its own batch alone. Every
/// replica must ask for the same sums in the same order.
class replica_exchange {
 public:
  /// Sets the values to their sums over the replicas. Throws communication_error.
  virtual void sum(std::span<double> values) = 0;

  /// That of the call in which the calling thread is; null if it is not of a replica.
  static replica_exchange* current() { return here(); }

  /// Makes an exchange current for its lifetime.
  class scope {
   public:
    explicit scope(replica_exchange& now) : before_{here()} { here() = &now; }
    scope(const scope&) = delete;
    ~scope() { here() = before_; }

   private:
    replica_exchange* before_;
  };

 protected:
  ~replica_exchange() = default;

 private:
  static replica_exchange*& here() {
    static constinit thread_local replica_exchange* one = nullptr;
    return one;
  }
};

}  // namespace ikebana::detail

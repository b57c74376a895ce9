#include <algorithm>
#include <utility>

#include "base/text.h"
#include "training/pipeline/action_index.h"

namespace tutti::training::pipeline {
namespace {

// The places of the send and the receive of one message, which carries the result of an entry to
// the entry that needs it.
struct Message {
  Site send;
  Site receive;
};

// The messages, indexed by the results that they carry: forward results by cell, then backward
// results.
struct Messages {
  const ActionIndex& action_index;
  std::vector<Message> by_result;

  size_t number(const Entry& result) const {
    const size_t cell = action_index.cell(result);
    return result.kind == Kind::forward ? cell : action_index.forward.size() + cell;
  }
};

// Checks that this rank computes the action's entry, and in the action's slot.
void check_owner(const ActionIndex& action_index, const Site& site) {
  const Action& action = action_index.at(site);
  const Site& maker = action_index.maker(action.entry);
  if (maker.rank != site.rank || action_index.at(maker).entry != action.entry) {
    refuse(action_index.plan, site, cat("this rank does not compute the ", describe(action.entry)),
           "a message of another rank");
  }
  const int slot = action_index.at(maker).slot;
  if (action.slot != slot) {
    refuse(action_index.plan, site,
           cat("names slot ", action.slot, ", but this micro-batch is in slot ", slot),
           "slots were reassigned for only some of the actions");
  }
}

void check_peer(const ActionIndex& action_index, const Site& site, const Site& other) {
  const int peer = action_index.at(site).peer;
  if (other.rank == site.rank) {
    refuse(
        action_index.plan, site,
        cat("no message is needed: ", to_string(action_index.plan, other), " is on the same rank"),
        "a message between chunks of one rank");
  }
  if (peer != other.rank) {
    refuse(action_index.plan, site,
           cat("goes to or comes from rank ", peer, "; expected rank ", other.rank, ", for ",
               to_string(action_index.plan, other)),
           "the wrong peer");
  }
}

void record(const ActionIndex& action_index, Site& known, const Site& site) {
  if (known.is_there()) {
    refuse(action_index.plan, site,
           cat("was done already, by ", to_string(action_index.plan, known)),
           "a duplicate message");
  }
  known = site;
}

void add_receive(Messages& messages, const Site& site) {
  const ActionIndex& action_index = messages.action_index;
  const Action& action = action_index.at(site);
  check_owner(action_index, site);
  if (!needs_input(action_index.plan.schedule, action.entry)) {
    refuse(action_index.plan, site, cat("the ", describe(action.entry), " needs no message"),
           "a superfluous receive");
  }
  const Entry input = input_of(action.entry);
  check_peer(action_index, site, action_index.maker(input));
  record(action_index, messages.by_result[messages.number(input)].receive, site);
  const Site& user = action_index.maker(action.entry);
  if (user.index < site.index) {
    refuse(action_index.plan, site,
           cat("is posted after its use, ", to_string(action_index.plan, user)),
           "a receive was moved");
  }
}

// Adds a send. The next entry may reuse the result's memory, so the send must come before that
// entry.
void add_send(Messages& messages, const Site& site, int last_compute) {
  const ActionIndex& action_index = messages.action_index;
  const Action& action = action_index.at(site);
  check_owner(action_index, site);
  const bool is_forward = action.entry.kind == Kind::forward;
  Entry user = action.entry;
  user.chunk += is_forward ? 1 : -1;
  if (user.chunk < 0 || user.chunk >= action_index.plan.schedule.chunks ||
      action.entry.kind == Kind::backward_weight) {
    refuse(action_index.plan, site, cat("no rank needs the ", describe(action.entry)),
           "a superfluous send");
  }
  check_peer(action_index, site, action_index.maker(user));
  record(action_index, messages.by_result[messages.number(action.entry)].send, site);
  const Site& maker = action_index.maker(action.entry);
  if (maker.index != last_compute) {
    refuse(action_index.plan, site,
           cat("does not follow its entry, ", to_string(action_index.plan, maker)),
           "a send was moved: its memory is not filled yet, or is reused already");
  }
}

void add_all(Messages& messages) {
  const Plan& plan = messages.action_index.plan;
  for (Site site = {0, 0}; site.rank < plan.schedule.ranks; ++site.rank) {
    const std::vector<Action>& actions = plan.ranks[index(site.rank)].actions;
    int last_compute = -1;
    for (site.index = 0; index(site.index) < actions.size(); ++site.index) {
      const Action::Kind kind = actions[index(site.index)].kind;
      if (kind == Action::Kind::compute) last_compute = site.index;
      if (kind == Action::Kind::receive) add_receive(messages, site);
      if (kind == Action::Kind::send) add_send(messages, site, last_compute);
    }
  }
}

// Checks that a result which one rank computes and another needs is sent and received.
void check_complete(const Messages& messages, const Site& user) {
  const ActionIndex& action_index = messages.action_index;
  const Entry& entry = action_index.at(user).entry;
  if (!needs_input(action_index.plan.schedule, entry)) return;
  const Entry input = input_of(entry);
  const Site& maker = action_index.maker(input);
  if (maker.rank == user.rank) return;
  const Message& message = messages.by_result[messages.number(input)];
  if (!message.receive.is_there()) {
    refuse(action_index.plan, user,
           cat("nothing receives its input from ", to_string(action_index.plan, maker)),
           "a receive is missing");
  }
  if (!message.send.is_there()) {
    refuse(action_index.plan, maker,
           cat("nothing sends its result, which is awaited at ", to_string(action_index.plan, user),
               ", by ", to_string(action_index.plan, message.receive)),
           "a send is missing");
  }
}

// Checks that messages between two ranks are received in the order in which they are sent.
void check_order(const Messages& messages) {
  const ActionIndex& action_index = messages.action_index;
  const auto ranks = static_cast<size_t>(action_index.plan.schedule.ranks);
  struct Channel {
    std::vector<Site> sends;
    size_t received = 0;
  };
  std::vector<Channel> channels(ranks * ranks);
  for (const bool sending : {true, false}) {
    for (Site site = {0, 0}; index(site.rank) < ranks; ++site.rank) {
      const std::vector<Action>& actions = action_index.plan.ranks[index(site.rank)].actions;
      for (site.index = 0; index(site.index) < actions.size(); ++site.index) {
        const Action& action = actions[index(site.index)];
        if (sending && action.kind == Action::Kind::send) {
          channels[index(site.rank) * ranks + index(action.peer)].sends.push_back(site);
        }
        if (sending || action.kind != Action::Kind::receive) continue;
        Channel& channel = channels[index(action.peer) * ranks + index(site.rank)];
        const Site& first = channel.sends[channel.received++];
        const Entry input = input_of(action.entry);
        if (messages.by_result[messages.number(input)].send == first) continue;
        refuse(action_index.plan, site,
               cat("another message comes first, ", to_string(action_index.plan, first)),
               "two receives or two sends were swapped");
      }
    }
  }
}

// Throws an error that describes a cycle of ranks that wait for each other. `next`, indexed by
// rank: the first action that the rank cannot execute.
[[noreturn]] void refuse_deadlock(const ActionIndex& action_index, const std::vector<Site>& next) {
  const auto awaited = [&](const Site& site) {
    return action_index.maker(input_of(action_index.at(site).entry)).rank;
  };
  const auto is_stuck = [&](const Site& site) {
    return index(site.index) < action_index.plan.ranks[index(site.rank)].actions.size();
  };
  Site site = *std::ranges::find_if(next, is_stuck);
  // After as many steps as there are ranks, the walk is in the cycle.
  for (size_t i = 0; i < next.size(); ++i) site = next[index(awaited(site))];
  const Site first = site;
  std::string circle;
  do {
    circle += cat(circle.empty() ? "" : ", ", to_string(action_index.plan, site),
                  " waits for rank ", awaited(site));
    site = next[index(awaited(site))];
  } while (site != first);
  refuse(action_index.plan, first, cat("deadlock: ", circle),
         "an entry comes too early on one of these ranks");
}

// Advances each rank as far as possible, in turns. Only `compute` actions wait: each for its input.
// An input counts as arrived once its rank has computed it, because the send follows, and its
// receive and all earlier receives of the channel are posted.
void check_progress(const ActionIndex& action_index) {
  const Plan& plan = action_index.plan;
  std::vector<Site> next(plan.ranks.size());
  for (size_t rank = 0; rank < next.size(); ++rank) next[rank] = {static_cast<int>(rank), 0};
  const auto has_arrived = [&](const Action& action) {
    if (action.kind != Action::Kind::compute || !needs_input(plan.schedule, action.entry)) {
      return true;
    }
    const Site& maker = action_index.maker(input_of(action.entry));
    return next[index(maker.rank)].index > maker.index;
  };
  size_t done = 0;
  for (bool moved = true; std::exchange(moved, false);) {
    done = 0;
    for (Site& site : next) {
      const std::vector<Action>& actions = plan.ranks[index(site.rank)].actions;
      for (; index(site.index) < actions.size() && has_arrived(actions[index(site.index)]);
           ++site.index) {
        moved = true;
      }
      done += index(site.index) == actions.size();
    }
  }
  if (done < next.size()) refuse_deadlock(action_index, next);
}

}  // namespace

void check_messages(const ActionIndex& action_index) {
  Messages messages{action_index, std::vector<Message>(2 * action_index.forward.size())};
  add_all(messages);
  for (const Site& user : action_index.forward) check_complete(messages, user);
  if (action_index.trains) {
    for (const Site& user : action_index.backward) check_complete(messages, user);
  }
  check_order(messages);
  check_progress(action_index);
}

}  // namespace tutti::training::pipeline

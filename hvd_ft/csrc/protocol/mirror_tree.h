// The tree by which the mirror joins the nodes of a job: rank 0's node is its root, and a node is
// joined to at most `most` nodes below it. So the nodes share the work of sending data to all
// nodes, and rank 0's node need not do it alone. With few nodes the tree is a star.
//
// The nodes of a subtree are consecutive, and so are their ranks. Arithmetic only.
#ifndef HVD_FT_MIRROR_TREE_H
#define HVD_FT_MIRROR_TREE_H

#include <algorithm>
#include <vector>

namespace hvdft {

class MirrorTree {
 public:
  MirrorTree(int nodes, int most) : parents_(static_cast<size_t>(nodes), -1), ends_(parents_) {
    place(0, nodes, most);
  }

  int nodes() const { return static_cast<int>(parents_.size()); }
  int parent(int node) const { return parents_[static_cast<size_t>(node)]; }  // -1 of the root
  // The nodes of its subtree are [node, end(node)).
  int end(int node) const { return ends_[static_cast<size_t>(node)]; }
  std::vector<int> children(int node) const {
    std::vector<int> children;
    for (int child = node + 1; child < end(node); child = end(child)) children.push_back(child);
    return children;
  }

 private:
  // [node, end) is a subtree: what is below its root is dealt out evenly.
  void place(int node, int end, int most) {
    ends_[static_cast<size_t>(node)] = end;
    int next = node + 1;
    for (int parts = std::min(most, end - next); parts > 0; --parts) {
      int child_end = next + (end - next + parts - 1) / parts;
      parents_[static_cast<size_t>(next)] = node;
      place(next, child_end, most);
      next = child_end;
    }
  }

  std::vector<int> parents_, ends_;
};

// One node's end of an edge of the tree, in ranks.
struct MirrorEdge {
  int node;      // the other end
  bool down;     // it is further from rank 0's node
  int peer;      // its first rank
  int end;       // downwards: its subtree has the ranks [peer, end)
  int mine_end;  // this node's subtree has those from its own first one to this
  int zero_end;  // rank 0's node has the ranks [0, zero_end)
};

// A node's ends of edges: the one upwards first, if it has one. `firsts`: the first rank of each
// node, and the number of ranks.
inline std::vector<MirrorEdge> mirror_edges(const MirrorTree& tree, int node,
                                            const std::vector<int>& firsts) {
  auto first = [&](int number) { return firsts[static_cast<size_t>(number)]; };
  auto edge = [&](int other, bool down) {
    return MirrorEdge{other,   down, first(other), first(tree.end(other)), first(tree.end(node)),
                      first(1)};
  };
  std::vector<MirrorEdge> edges;
  if (tree.parent(node) >= 0) edges.push_back(edge(tree.parent(node), false));
  for (int child : tree.children(node)) edges.push_back(edge(child, true));
  return edges;
}

}  // namespace hvdft

#endif  // HVD_FT_MIRROR_TREE_H

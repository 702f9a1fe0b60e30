// Contacts of a sphere or a capsule with a height field, with the signature of MuJoCo's mjfCollision. It is the body of
// a function that returns the address of `collide`, after the numbers WORD_... (mujoco_height_fields.py).
// The mathematics are those of sim/contacts/shapes.py, in double precision. Besides, an edge
// gives a contact only where the surface beside it is not nearer: a ball of any depth in a slope has one contact.

static constexpr double FAR = 1.0e6;       // m, the distance of what has not been found
static constexpr double SAME_FACE = 0.995;  // cosine between normals of faces that count as one
static constexpr double SAME_EDGE = 0.8;    // cosine between normals below which an edge beside a deeper contact counts
static constexpr double FLAT = 1.0e-5;      // change of slope below which two cells are one plane; heights are 0 to 1
static constexpr double TINY = 1.0e-6;      // m, and of a cell, within which a point lies on an edge
static constexpr int MOST = 4;

struct Vec {
    double x, y, z;
    Vec operator+(Vec o) const { return {x + o.x, y + o.y, z + o.z}; }
    Vec operator-(Vec o) const { return {x - o.x, y - o.y, z - o.z}; }
    Vec operator*(double k) const { return {k * x, k * y, k * z}; }
    double dot(Vec o) const { return x * o.x + y * o.y + z * o.z; }
    Vec cross(Vec o) const { return {y * o.z - z * o.y, z * o.x - x * o.z, x * o.y - y * o.x}; }
    double length() const { return sqrt(dot(*this)); }
};

struct Math {
    static double least(double a, double b) { return a < b ? a : b; }
    static double most(double a, double b) { return a > b ? a : b; }
    static double clamp(double t) { return t < 0.0 ? 0.0 : t > 1.0 ? 1.0 : t; }

    // the nearest point of a triangle, by regions of vertices, edges and face; whether it lies inside
    static Vec nearest_on_triangle(Vec p, Vec a, Vec b, Vec c, bool& inside) {
        inside = false;
        Vec ab = b - a, ac = c - a, ap = p - a, bp = p - b, cp = p - c;
        double d1 = ab.dot(ap), d2 = ac.dot(ap), d3 = ab.dot(bp), d4 = ac.dot(bp), d5 = ab.dot(cp), d6 = ac.dot(cp);
        if (d1 <= 0.0 && d2 <= 0.0) return a;
        if (d3 >= 0.0 && d4 <= d3) return b;
        double vc = d1 * d4 - d3 * d2;
        if (vc <= 0.0 && d1 >= 0.0 && d3 <= 0.0) return a + ab * (d1 / (d1 - d3));
        if (d6 >= 0.0 && d5 <= d6) return c;
        double vb = d5 * d2 - d1 * d6;
        if (vb <= 0.0 && d2 >= 0.0 && d6 <= 0.0) return a + ac * (d2 / (d2 - d6));
        double va = d3 * d6 - d5 * d4;
        if (va <= 0.0 && d4 - d3 >= 0.0 && d5 - d6 >= 0.0)
            return b + (c - b) * ((d4 - d3) / ((d4 - d3) + (d5 - d6)));
        inside = true;
        double inverse = 1.0 / (va + vb + vc);
        return a + ab * (vb * inverse) + ac * (vc * inverse);
    }

    // the parameters, 0 to 1, of the nearest points of the segments p + t d1 and q + u d2
    static void nearest_on_segments(Vec p, Vec d1, Vec q, Vec d2, double& t, double& u) {
        Vec r = p - q;
        double a = d1.dot(d1), e = d2.dot(d2), f = d2.dot(r), b = d1.dot(d2), c = d1.dot(r);
        double denominator = a * e - b * b;
        t = denominator > 1.0e-9 * a * e ? clamp((b * f - c * e) / denominator) : 0.5;
        u = (b * t + f) / e;
        if (u < 0.0) {
            u = 0.0;
            t = clamp(-c / a);
        } else if (u > 1.0) {
            u = 1.0;
            t = clamp((b - c) / a);
        }
    }
};

struct Cells {
    int first_row, last_row, first_column, last_column;
};

struct Surface {
    const float* heights;
    int rows, columns;
    double x0, y0, dx, dy, scale;

    double raw(int row, int column) const { return heights[row * columns + column]; }
    Vec node(int row, int column) const { return {x0 + column * dx, y0 + row * dy, raw(row, column) * scale}; }

    // of finite numbers: `collide` refuses others
    static void range(double low, double high, double corner, double cell, int nodes, int& first, int& last) {
        first = (int)Math::most(0.0, floor((low - corner) / cell));
        last = (int)Math::least(nodes - 2.0, floor((high - corner) / cell));
    }

    Cells around(Vec p, double wide, double deep) const {
        Cells c;
        range(p.x - wide, p.x + wide, x0, dx, columns, c.first_column, c.last_column);
        range(p.y - deep, p.y + deep, y0, dy, rows, c.first_row, c.last_row);
        return c;
    }

    bool lies_below(Cells c, double height) const {
        for (int row = c.first_row; row <= c.last_row + 1; row++)
            for (int column = c.first_column; column <= c.last_column + 1; column++)
                if (raw(row, column) * scale > height) return false;
        return true;
    }

    // how far a point lies below the surface, along z; negative above it and beyond the field
    double depth(Vec p) const {
        double u = (p.x - x0) / dx, v = (p.y - y0) / dy;
        if (!(u >= 0.0 && v >= 0.0 && u < columns - 1.0 && v < rows - 1.0)) return -FAR;
        int column = (int)u, row = (int)v;
        u -= column;
        v -= row;
        double low = node(row, column).z, high = node(row + 1, column + 1).z;
        if (u >= v) {
            double side = node(row, column + 1).z;
            return low + u * (side - low) + v * (high - side) - p.z;
        }
        double side = node(row + 1, column).z;
        return low + v * (side - low) + u * (high - side) - p.z;
    }

    // whether no triangle at q, a point of an edge, leads nearer to p
    bool is_nearest(Vec p, Vec q) const {
        Vec away = p - q;
        Cells cells = around(q, TINY, TINY);
        for (int row = cells.first_row; row <= cells.last_row; row++) {
            for (int column = cells.first_column; column <= cells.last_column; column++) {
                Vec a = node(row, column);
                double ahead = (q.x - a.x) / dx - (q.y - a.y) / dy;
                for (int half = 0; half < 2; half++) {
                    if (half ? ahead > TINY : ahead < -TINY) continue;  // the cell's other triangle has q
                    Vec b = half ? node(row + 1, column) : node(row, column + 1), c = node(row + 1, column + 1);
                    double most = Math::most(away.dot(b - q), away.dot(c - q));
                    if (Math::most(most, away.dot(a - q)) > 1.0e-9) return false;
                }
            }
        }
        return true;
    }

    // whether a node's edge along x (0), y (1) or to the diagonal neighbour (2) is higher than the ground beside it
    bool is_ridge(int row, int column, int edge) const {
        int r = row, c = column;
        if (edge == 0)
            return r == 0 || r == rows - 1 || (raw(r + 1, c + 1) - raw(r, c + 1)) - (raw(r, c) - raw(r - 1, c)) < -FLAT;
        if (edge == 1)
            return c == 0 || c == columns - 1 ||
                   (raw(r + 1, c + 1) - raw(r + 1, c)) - (raw(r, c) - raw(r, c - 1)) < -FLAT;
        return raw(r + 1, c) + raw(r, c + 1) - raw(r, c) - raw(r + 1, c + 1) < -FLAT;
    }
};

struct Touch {
    double dist;
    Vec normal;  // out of the ground
    Vec point;   // of the shape's axis
    int face;    // 1 where the nearest point lies inside a triangle
};

struct Contacts {
    int count;
    Touch at[MOST];

    // of two equal ones the deeper stays, of more than four the shallowest goes
    void keep(Touch touch) {
        int same = -1, shallowest = 0;
        for (int k = 0; k < count; k++) {
            double limit = touch.face + at[k].face == 2 ? SAME_FACE : SAME_EDGE;
            if (at[k].normal.dot(touch.normal) > limit) same = k;
            if (at[k].dist > at[shallowest].dist) shallowest = k;
        }
        int place = same >= 0 ? same : count < MOST ? count : shallowest;
        if (place == count) at[count++].dist = FAR;
        if (touch.dist < at[place].dist) at[place] = touch;
    }

    // without those at edges whose normal is near that of a deeper contact
    void prune() {
        Contacts all = *this;
        count = 0;
        for (int k = 0; k < all.count; k++) {
            bool stays = true;
            for (int other = 0; other < all.count; other++) {
                bool near = all.at[k].normal.dot(all.at[other].normal) > SAME_EDGE;
                double more = all.at[k].dist - all.at[other].dist;
                bool deeper = more > 0.0 || (more == 0.0 && other < k);
                if (other != k && all.at[k].face == 0 && near && deeper) stays = false;
            }
            if (stays) at[count++] = all.at[k];
        }
    }

    int deepest() const {
        int best = 0;
        for (int k = 1; k < count; k++)
            if (at[k].dist < at[best].dist) best = k;
        return best;
    }
};

struct Shapes {
    static void sphere(const Surface& s, Vec p, double radius, double reach, Contacts& found) {
        found.count = 0;
        double below = s.depth(p), around = radius + reach;
        Cells cells = s.around(p, around, around);
        if (below < 0.0 && s.lies_below(cells, p.z - around)) return;
        if (below >= 0.0) cells = s.around(p, 0.0, 0.0);  // the centre is in the ground: out through the face above it
        for (int row = cells.first_row; row <= cells.last_row; row++) {
            for (int column = cells.first_column; column <= cells.last_column; column++) {
                Vec a = s.node(row, column), d = s.node(row + 1, column + 1);
                for (int half = 0; half < 2; half++) {  // along x first: counter-clockwise from above
                    Vec b = half ? d : s.node(row, column + 1), c = half ? s.node(row + 1, column) : d;
                    Vec normal = (b - a).cross(c - a);
                    normal = normal * (1.0 / normal.length());
                    if (below >= 0.0) {
                        bool right = (p.x - a.x) * s.dy - (p.y - a.y) * s.dx >= 0.0;
                        if (right == (half == 0)) found.keep({(p - a).dot(normal) - radius, normal, p, 1});
                    } else if (Math::most(a.z, Math::most(b.z, c.z)) > p.z - around) {
                        bool inside;
                        Vec nearest = Math::nearest_on_triangle(p, a, b, c, inside), offset = p - nearest;
                        double dist = offset.length();
                        if (!(dist < around && (inside || dist > 1.0e-6))) continue;
                        if (inside)
                            found.keep({fabs((p - a).dot(normal)) - radius, normal, p, 1});
                        else if (s.is_nearest(p, nearest))
                            found.keep({dist - radius, offset * (1.0 / dist), p, 0});
                    }
                }
            }
        }
        found.prune();
    }

    // those of the two ends as spheres, and in each half that of the edge on which the middle lies, if it is deeper
    static void capsule(const Surface& s, Vec center, Vec axis, double radius, double reach, Contacts& found) {
        found.count = 0;
        double ends[2] = {FAR, FAR}, around = radius + reach;
        double lowest = center.z - fabs(axis.z) - around;
        Cells cells = s.around(center, fabs(axis.x) + around, fabs(axis.y) + around);
        bool above = s.lies_below(cells, lowest - radius);  // an end is sought within another radius
        if (above) return;
        for (int end = 0; end < 2; end++) {
            Vec p = end ? center + axis : center - axis;
            Contacts at_end;
            sphere(s, p, radius, reach + radius, at_end);
            if (at_end.count > 0) {
                Touch touch = at_end.at[at_end.deepest()];
                ends[end] = touch.dist;
                if (touch.dist < reach) found.at[found.count++] = touch;
            }
        }
        Touch middle[2] = {{FAR, center, center, 0}, {FAR, center, center, 0}};
        Vec start = center - axis, along = axis * 2.0;
        for (int row = cells.first_row; row <= cells.last_row; row++) {
            for (int column = cells.first_column; column <= cells.last_column; column++) {
                Vec a = s.node(row, column);
                for (int edge = 0; edge < 3; edge++) {
                    Vec b = s.node(row + (edge > 0), column + (edge != 1));
                    // in a valley or a plane the ends are nearer to the ground than the middle
                    if (Math::most(a.z, b.z) <= lowest || !s.is_ridge(row, column, edge)) continue;
                    double t, u;
                    Math::nearest_on_segments(start, along, a, b - a, t, u);
                    Vec p = start + along * t, offset = p - (a + (b - a) * u);
                    double length = offset.length();
                    if (!(t > 0.001 && t < 0.999 && length < around && length > 1.0e-6)) continue;
                    double sign = s.depth(p) > 0.0 ? -1.0 : 1.0, here = sign * length - radius;
                    Touch& best = middle[t < 0.5 ? 0 : 1];
                    if (here < best.dist && here < ends[0] + t * (ends[1] - ends[0]) - 1.0e-4)
                        best = {here, offset * (sign / length), p, 0};
                }
            }
        }
        for (int half = 0; half < 2; half++)
            if (middle[half].dist < reach) found.at[found.count++] = middle[half];
    }
};

struct Pair {
    static Vec turn(const double* mat, Vec v) {
        return {mat[0] * v.x + mat[1] * v.y + mat[2] * v.z, mat[3] * v.x + mat[4] * v.y + mat[5] * v.z,
                mat[6] * v.x + mat[7] * v.y + mat[8] * v.z};
    }
    static Vec turn_back(const double* mat, Vec v) {
        return {mat[0] * v.x + mat[3] * v.y + mat[6] * v.z, mat[1] * v.x + mat[4] * v.y + mat[7] * v.z,
                mat[2] * v.x + mat[5] * v.y + mat[8] * v.z};
    }

    // mjfCollision: geom g1 is the field; a contact is dist, pos (3), normal (3), tangent (3)
    static int collide(const void* m, void* d, double* contacts, int g1, int g2, double margin) {
        const void* const* model = (const void* const*)m;
        const void* const* data = (const void* const*)d;
        const double* frame = (const double*)data[WORD_geom_xmat] + 9 * g1;
        const double* p1 = (const double*)data[WORD_geom_xpos] + 3 * g1;
        const double* p2 = (const double*)data[WORD_geom_xpos] + 3 * g2;
        const double* mat2 = (const double*)data[WORD_geom_xmat] + 9 * g2;
        const double* shape = (const double*)model[WORD_geom_size] + 3 * g2;
        int field = ((const int*)model[WORD_geom_dataid])[g1];
        const double* size = (const double*)model[WORD_hfield_size] + 4 * field;

        Vec origin = {p1[0], p1[1], p1[2]};
        Vec center = turn_back(frame, Vec{p2[0], p2[1], p2[2]} - origin), axis = {0.0, 0.0, 0.0};
        bool capsule = ((const int*)model[WORD_geom_type])[g2] == CAPSULE;
        if (capsule) axis = turn_back(frame, Vec{mat2[2], mat2[5], mat2[8]}) * shape[1];
        double radius = shape[0], bound = radius + margin + axis.length();
        if (!(fabs(center.x) <= size[0] + bound && fabs(center.y) <= size[1] + bound)) return 0;
        if (!(center.z - bound <= size[2])) return 0;

        Surface s;
        s.heights = (const float*)model[WORD_hfield_data] + ((const int*)model[WORD_hfield_adr])[field];
        s.rows = ((const int*)model[WORD_hfield_nrow])[field];
        s.columns = ((const int*)model[WORD_hfield_ncol])[field];
        s.x0 = -size[0];
        s.y0 = -size[1];
        s.dx = 2.0 * size[0] / (s.columns - 1);
        s.dy = 2.0 * size[1] / (s.rows - 1);
        s.scale = size[2];
        Contacts found;
        if (capsule)
            Shapes::capsule(s, center, axis, radius, margin, found);
        else
            Shapes::sphere(s, center, radius, margin, found);

        int count = 0;
        for (int k = 0; k < found.count; k++) {
            Touch touch = found.at[k];
            if (!(touch.dist < margin)) continue;
            Vec pos = turn(frame, touch.point - touch.normal * (radius + 0.5 * touch.dist)) + origin;
            Vec normal = turn(frame, touch.normal);
            double contact[10] = {touch.dist, pos.x, pos.y, pos.z, normal.x, normal.y, normal.z, 0.0, 0.0, 0.0};
            for (int i = 0; i < 10; i++) contacts[10 * count + i] = contact[i];
            count++;
        }
        return count;
    }
};

return (wp::uint64)&Pair::collide;

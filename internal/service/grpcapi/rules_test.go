package grpcapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// Every method that gRPC serves has a rule, and every rule a method.
func TestEveryMethodHasARule(t *testing.T) {
	s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{Reflection: true})
	a := newAPI(s)
	served := 0
	for name, info := range a.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			served++
			assert.NotZero(t, rules["/"+name+"/"+m.Name], "%s/%s", name, m.Name)
		}
	}
	assert.Len(t, rules, served)
	t.Logf("%d methods", served)
}

func TestAMethodWithoutARuleIsNamed(t *testing.T) {
	err := checkRules(map[string]grpc.ServiceInfo{"kvd.v1.KVService": {Methods: []grpc.MethodInfo{{Name: "Get"}, {Name: "Drop"}}}})
	require.ErrorContains(t, err, "method /kvd.v1.KVService/Drop has no rule")
	assert.NotContains(t, err.Error(), "Get")
}

// A path without its first slash is not another method for the rules.
func TestARuleDoesNotDependOnTheFirstSlash(t *testing.T) {
	for name, want := range rules {
		assert.Equal(t, want, ruleOf(name))
		assert.Equal(t, want, ruleOf(name[1:]), name)
	}
	for _, name := range []string{"", "/", "/kvd.v1.KVService/Nonsense", "//kvd.v1.KVService/Get"} {
		assert.Equal(t, service.SignedIn, ruleOf(name), name)
	}
}

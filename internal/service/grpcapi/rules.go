package grpcapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/tap"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// rules says for every method which clients may call it, by its full name.
var rules = map[string]service.Rule{
	kvdpb.KVService_Get_FullMethodName:         service.ByKey,
	kvdpb.KVService_Put_FullMethodName:         service.ByKey,
	kvdpb.KVService_Delete_FullMethodName:      service.ByKey,
	kvdpb.KVService_DeleteRange_FullMethodName: service.ByKey,
	kvdpb.KVService_BatchGet_FullMethodName:    service.ByKey,
	kvdpb.KVService_Write_FullMethodName:       service.ByKey,
	kvdpb.KVService_Scan_FullMethodName:        service.ByKey,
	kvdpb.KVService_Pipeline_FullMethodName:    service.ByKey,

	kvdpb.TxnService_BeginSnapshot_FullMethodName: service.ByKey,
	// The id of a snapshot is random, and shows that its client began it.
	kvdpb.TxnService_KeepSnapshot_FullMethodName:    service.ByKey,
	kvdpb.TxnService_ReleaseSnapshot_FullMethodName: service.ByKey,
	kvdpb.TxnService_Commit_FullMethodName:          service.ByKey,
	kvdpb.TxnService_Execute_FullMethodName:         service.ByKey,

	kvdpb.AdminService_ListSlowRequests_FullMethodName:  service.Admin,
	kvdpb.AdminService_ClearSlowRequests_FullMethodName: service.Admin,
	kvdpb.AdminService_Backup_FullMethodName:            service.Admin,
	kvdpb.AdminService_Scrub_FullMethodName:             service.Admin,
	kvdpb.AdminService_SetSetting_FullMethodName:        service.Admin,

	kvdpb.AdminService_GetCluster_FullMethodName:         service.Admin,
	kvdpb.AdminService_TransferLeadership_FullMethodName: service.Admin,
	kvdpb.AdminService_AddNode_FullMethodName:            service.Admin,
	kvdpb.AdminService_RemoveNode_FullMethodName:         service.Admin,
	kvdpb.AdminService_MoveNode_FullMethodName:           service.Admin,

	healthpb.Health_Check_FullMethodName: service.Public,
	healthpb.Health_List_FullMethodName:  service.Public,
	healthpb.Health_Watch_FullMethodName: service.Public,

	reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:      service.SignedIn,
	reflectionalphapb.ServerReflection_ServerReflectionInfo_FullMethodName: service.SignedIn,
}

// checkRules returns an error if a method that gRPC serves has no rule.
func checkRules(services map[string]grpc.ServiceInfo) (err error) {
	for _, name := range slices.Sorted(maps.Keys(services)) {
		for _, m := range services[name].Methods {
			if full := "/" + name + "/" + m.Name; rules[full] == 0 {
				err = errors.Join(err, fmt.Errorf("method %s has no rule about its clients", full))
			}
		}
	}
	return err
}

// ruleOf returns the rule of a method by the name in a request, with or without its first
// slash. One that does not exist is refused by gRPC; until then its client must be known.
func ruleOf(fullName string) service.Rule {
	if !strings.HasPrefix(fullName, "/") {
		fullName = "/" + fullName
	}
	if rule := rules[fullName]; rule != 0 {
		return rule
	}
	return service.SignedIn
}

// signIn finds the identity of the client, before anything of the request is taken in.
func (c *call) signIn(info *tap.Info) error {
	s := c.api.server
	rule := ruleOf(info.FullMethodName)
	c.rule = rule
	if s.Options().Auth == nil || rule == service.Public {
		return nil
	}
	c.work.Method = c.method.String()
	if rules[info.FullMethodName] != 0 { // else the name is what the client likes
		c.work.Method = info.FullMethodName
	}
	c.work.Session = c.conn.SignIn(bearer(info.Header.Get("authorization")))
	err := s.Authorize(&c.work.Caller, c.work.Session, rule, time.Now())
	if err == nil {
		err = s.Admit(&c.work.Caller)
	}
	if err != nil {
		why := s.Failure(c.method, err)
		c.method.Count(why.Code, 1)
		return statusError{why}
	}
	if rule == service.Admin {
		s.Options().Audit(audit.Event{Kind: audit.Admin, Identity: c.work.Identity.Name, Peer: c.conn.Name(), Method: c.work.Method})
	}
	return nil
}

// judge judges the client anew: since the last time its token may have been revoked, or have
// expired.
func (c *call) judge() error {
	return c.api.server.Authorize(&c.work.Caller, c.work.Session, c.rule, time.Now())
}

// ambiguous is a token that signs no client in.
const ambiguous = "ambiguous"

// bearer returns the token in the values of the header authorization: "" if there is none.
func bearer(values []string) string {
	const scheme = "bearer "
	if len(values) == 0 {
		return ""
	}
	if v := values[0]; len(values) == 1 && len(v) > len(scheme) && strings.EqualFold(v[:len(scheme)], scheme) {
		return strings.TrimSpace(v[len(scheme):])
	}
	return ambiguous
}
